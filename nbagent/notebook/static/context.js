// The gauge of the context, live during a turn, with the buttons Compact and Undo.

const HUES = [210, 30, 120, 280, 0, 180, 55, 330, 90, 250, 150, 15];

function render({ model, el }) {
  const title = make("strong", { className: "nbagent-title" });
  const doing = make("span", { className: "nbagent-dim" });
  const bar = make("div", { className: "nbagent-bar", role: "meter", "aria-label": "Context used", "aria-valuemin": "0" });
  const compact = make("button", { type: "button", textContent: "Compact…" });
  const undo = make("button", { type: "button", textContent: "Undo", disabled: true });
  const line = make("div", { className: "nbagent-line", role: "status", "aria-live": "polite" });
  const form = make("div", { className: "nbagent-form", hidden: true, role: "group", "aria-label": "Compaction" });
  const say = (text) => (line.textContent = text);
  el.classList.add("nbagent-widget");
  el.append(
    make("div", { className: "nbagent-row" }, title, doing, make("span", { className: "nbagent-space" }), compact, undo),
    bar,
    line,
    form,
  );

  function draw(parts) {
    const gauge = parts.gauge;
    const turn = parts.turn;
    if (!gauge || !turn) return;
    const words = [`${counted(gauge.used_tokens)} of ${counted(gauge.window_tokens)} tokens`, `level ${gauge.level} of 10`];
    if (gauge.cache_hit_rate !== null) words.push(`cache hits ${Math.round(100 * gauge.cache_hit_rate)} %`);
    if (gauge.cost_usd > 0) words.push(money(gauge.cost_usd));
    title.textContent = words.join(" · ");
    doing.textContent = turn.status === "idle" ? "" : turn.activity;
    drawBar(bar, gauge);
    undo.disabled = !(parts.compaction && parts.compaction.entry);
  }

  const link = new Link(model, ["gauge", "turn", "compaction"], draw, say);

  async function preview() {
    compact.disabled = true;
    say("The hand-off note is being written …");
    const reply = await link.command("preview_compaction", { focus: "" });
    compact.disabled = false;
    say(reply.line);
    if (reply.status === "ok") edit(reply.result);
  }

  function edit(found) {
    const note = make("textarea", { rows: 12, value: found.note, "aria-label": "Hand-off note" });
    const apply = make("button", { type: "button", textContent: "Apply" });
    const cancel = make("button", { type: "button", textContent: "Cancel" });
    const less = Math.round(share(found.before_tokens - found.after_tokens, found.before_tokens));
    const sizes = `${counted(found.before_tokens)} → ${counted(found.after_tokens)} tokens (${less} % less)`;
    const kept = `of what is replaced: ${found.verbatim} word for word, ${found.reachable} one call away, ${found.lost} lost`;
    form.replaceChildren(
      make("div", { textContent: `${sizes} · ${kept}` }),
      lostList(found),
      make("div", { className: "nbagent-dim", textContent: "The agent goes on from this note. Change what you like." }),
      note,
      make("div", { className: "nbagent-row" }, apply, cancel),
    );
    form.hidden = false;
    note.focus();
    const shut = () => {
      form.hidden = true;
      form.replaceChildren();
      compact.focus();
    };
    cancel.onclick = () => {
      shut();
      say("Nothing was changed.");
    };
    form.onkeydown = (event) => {
      if (event.key === "Escape") cancel.click();
    };
    apply.onclick = async () => {
      apply.disabled = true;
      const reply = await link.command("compact", { note: note.value, focus: "" });
      apply.disabled = false;
      if (reply.status === "ok") shut();
      say(reply.line);
    };
  }

  compact.onclick = preview;
  undo.onclick = async () => {
    undo.disabled = true;
    say((await link.command("undo", {})).line);
    draw(link.parts);
  };
  draw(link.parts);
  return () => link.close();
}

function drawBar(bar, gauge) {
  const parts = Object.entries(gauge.categories).map(([name, tokens], i) => {
    const label = `${name}: ${counted(tokens)} tokens`;
    const piece = make("span", { className: "nbagent-piece", title: label });
    piece.style.width = `${share(tokens, gauge.window_tokens)}%`;
    piece.style.background = `hsl(${HUES[i % HUES.length]} 55% 50%)`;
    return tokens > 0 ? piece : null;
  });
  const mark = make("span", { className: "nbagent-mark", title: `compaction at ${counted(gauge.threshold_tokens)} tokens` });
  mark.style.left = `${share(gauge.threshold_tokens, gauge.window_tokens)}%`;
  bar.replaceChildren(...parts.filter(Boolean), mark);
  bar.setAttribute("aria-valuemax", String(gauge.window_tokens));
  bar.setAttribute("aria-valuenow", String(gauge.used_tokens));
  bar.setAttribute("aria-valuetext", `${counted(gauge.used_tokens)} of ${counted(gauge.window_tokens)} tokens`);
}

function lostList(found) {
  if (found.rows.length === 0) return null;
  const rows = found.rows.map((row) => make("li", { textContent: `${row.kind}: ${row.text}` }));
  const more = found.lost - rows.length;
  if (more > 0) rows.push(make("li", { textContent: `and ${more} more` }));
  const summary = make("summary", { textContent: `Lost: ${found.lost}, in no context and found by no search` });
  return make("details", {}, summary, make("ul", {}, ...rows));
}

export default { render };

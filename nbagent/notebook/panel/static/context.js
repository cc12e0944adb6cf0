// The gauge of the context, live during a turn, with the buttons Compact and Undo.

// What a context holds, in the order of the report, and the hue of each there.
const CATEGORIES = [
  "system", "tools", "skills", "memory", "instructions", "summary", "messages", "thinking", "images", "tool results",
  "notebook", "other",
];
const HUES = [210, 30, 120, 280, 0, 180, 55, 330, 90, 250, 150, 15];

function render({ model, el }) {
  const title = make("strong", { className: "nbagent-title" });
  const doing = make("span", { className: "nbagent-dim" });
  const bar = make("div", { className: "nbagent-bar", role: "meter", "aria-label": "Context used", "aria-valuemin": "0" });
  const compact = make("button", { type: "button", textContent: "Compact…" });
  const undo = make("button", { type: "button", textContent: "Undo", disabled: true });
  const { line, say } = spoken();
  const why = make("div", { className: "nbagent-dim", hidden: true, id: `nbagent-why-${Math.random().toString(36).slice(2)}` });
  compact.setAttribute("aria-describedby", why.id);
  const form = make("div", { className: "nbagent-form", hidden: true, role: "group", "aria-label": "Compaction" });
  el.classList.add("nbagent-widget");
  el.append(
    make("div", { className: "nbagent-row" }, title, doing, make("span", { className: "nbagent-space" }), make("span", { className: "nbagent-together" }, compact, undo)),
    bar,
    why,
    line,
    form,
  );

  let undoing = false;
  let onMove = () => undefined; // what an open preview does when the conversation may have moved
  let writing = false; // a note is being written
  let open = null; // the preview that is shown: {found, note, left}; `left`: the conversation has left it behind
  let aside = ""; // a note as it was edited, that another took the place of or that was cancelled
  let cancelled = false; // the note that was written is not wanted

  /** A note that was paid for is not written over; nor is one offered that the kernel would refuse. */
  function drawCompact(parts) {
    const refused = (parts.session?.refused ?? []).find((one) => one.name === "preview_compaction")?.line ?? "";
    const blocked = writing || (open !== null && !open.left) || refused !== "";
    compact.setAttribute("aria-disabled", String(blocked));
    compact.title = refused || "Have a hand-off note written, and look at it first";
    why.textContent = refused;
    why.hidden = refused === "";
    return blocked;
  }

  function draw(parts) {
    const gauge = parts.gauge;
    const turn = parts.turn;
    if (!gauge || !turn) return;
    const words = [`${counted(gauge.used_tokens)} of ${counted(gauge.window_tokens)} tokens`, `level ${gauge.level} of 10`];
    if (gauge.cache_hit_rate !== null) words.push(`cache hits ${Math.round(100 * gauge.cache_hit_rate)} %`);
    if (gauge.cost_usd > 0) words.push(`session cost ${money(gauge.cost_usd)}`);
    title.textContent = words.join(" · ");
    const asked = parts.approval && parts.approval.approval;
    doing.textContent = turn.status === "idle" ? "" : asked ? "waiting for your answer" : turn.activity;
    drawBar(bar, gauge);
    undo.disabled = undoing || !(parts.compaction && parts.compaction.entry);
    onMove();
    drawCompact(parts);
  }

  const link = new Link(model, ["session", "gauge", "compaction", "tree", "approval"], draw, say);

  async function preview() {
    if (drawCompact(link.parts)) return;
    writing = true;
    drawCompact(link.parts);
    say("The hand-off note is being written …", "Compact");
    const before = place(link.parts);
    const reply = await link.command("preview_compaction", { focus: "", again: cancelled }, "Compact");
    writing = false;
    say(reply.line, "Compact");
    if (reply.status === "ok") {
      cancelled = false;
      setAside();
      edit(reply.result, reply.waited ? null : before, aside);
    }
    drawCompact(link.parts);
  }

  /** Keep what was edited of the note, to stand beside the next one. */
  function setAside() {
    if (open !== null && open.note.value !== open.found.note) aside = open.note.value;
  }

  /** Where the conversation is: the turn and the compaction in force; null while a turn runs. */
  function place({ turn, tree, compaction }) {
    return turn && turn.status !== "idle" ? null : `${tree?.leaf ?? ""} ${compaction?.entry ?? ""}`;
  }

  /**
   * Show the note for editing; `of` is where the conversation was, null: where it is when no turn runs. `edited` is a
   * note that was edited before and left behind; it is kept beside the new one.
   */
  function edit(found, of, edited) {
    const note = make("textarea", { rows: 12, value: found.note, "aria-label": "Hand-off note" });
    const apply = make("button", { type: "button", textContent: "Apply" });
    const cancel = make("button", { type: "button", textContent: "Cancel" });
    const less = Math.round(share(found.before_tokens - found.after_tokens, found.before_tokens));
    const sizes = `With the note as the model wrote it: ${counted(found.before_tokens)} → ${counted(found.after_tokens)} tokens (${less} % less)`;
    const kept = `of what is replaced ${found.verbatim} word for word, ${found.reachable} one call away, ${found.lost} lost`;
    form.replaceChildren(...[
      make("div", { textContent: `${sizes} · ${kept}` }),
      lostList(found),
      make("div", { className: "nbagent-dim", textContent: NOTE }),
      note,
      edited ? otherNote(note, edited) : null,
      make("div", { className: "nbagent-row" }, apply, cancel),
    ].filter(Boolean));
    form.hidden = false;
    note.focus();
    let moved = false;
    open = { found, note, left: false };
    onMove = () => {
      const now = place(link.parts);
      of ??= now;
      apply.disabled = moved || now === null;
      if (moved || now === null || now === of) return;
      moved = apply.disabled = open.left = true;
      say("Out of date: the conversation has moved since. Press Compact… to have the note written again; yours is kept.", "Note");
    };
    onMove();
    const shut = () => {
      onMove = () => undefined;
      open = null;
      say("", "Note");
      drawCompact(link.parts);
      form.hidden = true;
      form.replaceChildren();
      compact.focus();
    };
    cancel.onclick = () => {
      cancelled = true;
      setAside();
      shut();
      say("Nothing was changed.", "Compact");
    };
    form.onkeydown = (event) => {
      if (event.key === "Escape" && !event.isComposing) cancel.click();
    };
    apply.onclick = async () => {
      apply.disabled = true;
      const reply = await link.command("compact", { note: note.value, focus: "", base: found.base ?? "" }, "Compact");
      say(reply.line, "Compact");
      if (reply.status === "ok") {
        aside = "";
        shut();
      } else onMove();
    };
  }

  compact.onclick = preview;
  undo.onclick = async () => {
    undoing = undo.disabled = true;
    say((await link.command("undo", {}, "Undo")).line, "Undo");
    undoing = false;
    draw(link.parts);
  };
  draw(link.parts);
  return () => link.close();
}

const NOTE = "The agent goes on from this note. Change what you like; sizes and losses are not counted again.";

/** Return the note that was edited before, with a button that swaps it with the one in the field. */
function otherNote(note, edited) {
  const text = make("pre", { textContent: edited, tabIndex: 0, "aria-label": "The other note" });
  const swap = make("button", { type: "button", textContent: "Swap the two notes" });
  swap.onclick = () => ([note.value, text.textContent] = [text.textContent, note.value]);
  return make("details", { open: true }, make("summary", { textContent: "The other note, as you edited it" }), text, swap);
}

/** Return the place of a category; what is not known counts as the last. */
function order(name) {
  const place = CATEGORIES.indexOf(name);
  return place >= 0 ? place : CATEGORIES.length - 1;
}

function drawBar(bar, gauge) {
  const whole = Math.max(gauge.window_tokens, gauge.used_tokens); // also of a context that does not fit
  const sizes = Object.entries(gauge.categories).sort(([a], [b]) => order(a) - order(b));
  const parts = sizes.map(([name, tokens]) => {
    const label = `${name}: ${counted(tokens)} tokens`;
    const piece = make("span", { className: "nbagent-piece", title: label });
    piece.style.width = `${share(tokens, whole)}%`;
    piece.style.background = `hsl(${HUES[order(name)]} 55% 55%)`;
    return tokens > 0 ? piece : null;
  });
  const mark = make("span", { className: "nbagent-mark", title: `compaction at ${counted(gauge.threshold_tokens)} tokens` });
  mark.style.left = `${share(gauge.threshold_tokens, whole)}%`;
  bar.replaceChildren(...parts.filter(Boolean), mark);
  bar.setAttribute("aria-valuemax", String(gauge.window_tokens));
  bar.setAttribute("aria-valuenow", String(Math.min(gauge.used_tokens, gauge.window_tokens)));
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

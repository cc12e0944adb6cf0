// Search in memory; a result opens the file at its line, or shows the lines here where nothing can open files.

function render({ model, el }) {
  const query = make("input", { type: "search", placeholder: "Search memory", "aria-label": "Search memory" });
  const go = make("button", { type: "button", textContent: "Search" });
  const form = make("div", { className: "nbagent-row", role: "search" }, query, go);
  const list = make("ol", { className: "nbagent-list", "aria-label": "Results" });
  const { line, say } = spoken();
  el.classList.add("nbagent-widget");
  el.append(form, line, list);
  const link = new Link(model, ["session"], () => undefined, say);

  query.onkeydown = (event) => {
    if (event.key === "Enter" && !event.isComposing) void search();
  };
  go.onclick = () => void search();

  async function search() {
    if (go.disabled || !query.value.trim()) return;
    go.disabled = true;
    say("Searching …");
    const reply = await link.command("search", { query: query.value, count: 8 });
    go.disabled = false;
    if (reply.status !== "ok") return say(reply.line);
    const rows = reply.result.rows;
    say(reply.result.note || `${rows.length} found`);
    list.replaceChildren(...rows.map(hit));
  }

  function hit(found) {
    const place = `${found.path}:${found.start_line}`;
    const open = make("button", { type: "button", className: "nbagent-link", textContent: place, title: "Open at this line" });
    const lines = make("pre", { hidden: true, tabIndex: 0, "aria-label": `Lines of ${found.path}` });
    const facts = [found.date, found.score.toFixed(2), found.why].filter(Boolean).join(" · ");
    open.onclick = () => {
      const detail = { relative: found.relative, line: found.start_line, refused: show };
      const event = new CustomEvent("nbagent:open", { detail, bubbles: true, composed: true, cancelable: true });
      if (found.relative && !el.dispatchEvent(event)) return; // JupyterLab's panel opens it, or calls `refused`
      void show();
    };
    async function show() {
      if (!lines.hidden) return void (lines.hidden = true);
      const reply = await link.command("read", { path: found.path, line: found.start_line });
      if (reply.status !== "ok") return say(reply.line);
      lines.textContent = reply.result.text;
      lines.hidden = false;
    }
    return make(
      "li",
      {},
      make("div", {}, open, make("span", { className: "nbagent-dim", textContent: ` ${facts}` })),
      make("div", { className: "nbagent-snippet", textContent: found.snippet }),
      lines,
    );
  }

  return () => link.close();
}

export default { render };

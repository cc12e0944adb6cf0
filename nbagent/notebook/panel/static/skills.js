// The catalog of skills: search, why a skill is hidden, what it costs, and a switch for each.

const ROWS = 50;

function render({ model, el }) {
  const search = make("input", { type: "search", placeholder: "Search skills", "aria-label": "Search skills" });
  const sums = make("span", { className: "nbagent-dim" });
  const list = make("ul", { className: "nbagent-list", "aria-label": "Skills" });
  const more = make("button", { type: "button", textContent: "More", hidden: true });
  const { line, say } = spoken();
  el.classList.add("nbagent-widget");
  el.append(make("div", { className: "nbagent-row" }, search, sums), list, more, line);

  let revision = null;
  let asked = 0;
  const link = new Link(model, ["catalog"], draw, say);

  function draw(parts) {
    const catalog = parts.catalog;
    if (!catalog) return;
    const problems = catalog.problems > 0 ? ` · ${catalog.problems} ${catalog.problems === 1 ? "problem" : "problems"}, see %skills lint` : "";
    sums.textContent =
      `${catalog.visible} of ${catalog.total} visible · ${counted(catalog.prompt_tokens)} tokens in every request` + problems;
    if (catalog.revision !== revision) {
      revision = catalog.revision;
      void page(0);
    }
  }

  async function page(start) {
    const turn = (asked += 1);
    const reply = await link.command("page", { of: "catalog", start, count: ROWS, text: search.value });
    if (turn !== asked) return; // something else was asked for meanwhile
    if (reply.status !== "ok") return say(reply.line);
    const found = reply.result;
    const rows = found.rows.map(row);
    if (start === 0) list.replaceChildren(...rows);
    else list.append(...rows);
    more.hidden = list.children.length >= found.total;
    more.onclick = () => page(list.children.length);
    if (start === 0 && search.value) say(`${counted(found.total)} found`);
  }

  function row(skill) {
    const toggle = make("button", {
      type: "button",
      role: "switch",
      className: "nbagent-switch",
      textContent: skill.on ? "on" : "off",
      "aria-checked": String(skill.on),
      "aria-label": `Let the model use ${skill.name}`,
    });
    toggle.onclick = async () => {
      toggle.disabled = true;
      const reply = await link.command("set_skill", { skill: skill.name, on: !skill.on }, skill.name);
      toggle.disabled = false;
      say(reply.line, skill.name);
      if (reply.status === "ok") await page(0);
    };
    const facts = [skill.source, `${counted(skill.tokens)} tokens`, skill.uses > 0 ? `used ${skill.uses === 1 ? "once" : `${skill.uses} times`}` : ""];
    return make(
      "li",
      { className: skill.visible ? "" : "nbagent-hidden" },
      toggle,
      make(
        "div",
        { className: "nbagent-about", title: skill.path },
        make("strong", { textContent: skill.name }),
        make("span", { className: "nbagent-dim", textContent: ` ${facts.filter(Boolean).join(" · ")}` }),
        make("div", { textContent: skill.visible ? skill.description : `Hidden: ${skill.reason}` }),
      ),
    );
  }

  let timer = 0;
  search.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => page(0), 150);
  };
  draw(link.parts);
  return () => {
    clearTimeout(timer);
    link.close();
  };
}

export default { render };

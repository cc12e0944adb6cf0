// What the three widgets share: elements made of text, and the link to the kernel. It is put in front of each module.
// Everything that comes from the kernel is set as text, never as markup: names and prompts may hold anything.

/** Return an element; `props` are properties, those with a dash attributes. */
function make(tag, props, ...children) {
  const node = document.createElement(tag);
  node.setAttribute("data-lm-suppress-shortcuts", "true"); // else d d on a button deletes the cell in JupyterLab
  for (const [key, value] of Object.entries(props ?? {})) {
    if (key.includes("-") || key === "role" || key === "for") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const counted = (n) => Number(n).toLocaleString("en-US");

/** Return dollars as the reports write them: four places below ten, two above. */
function money(usd) {
  const places = usd < 10 ? 4 : 2;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}

const share = (part, whole) => (whole > 0 ? Math.min(100, Math.max(0, (100 * part) / whole)) : 0);
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Return `parts` after a delta: objects field by field, all else replaced. */
function merged(parts, changes) {
  const out = { ...parts };
  for (const [key, value] of Object.entries(changes)) {
    out[key] = isObject(value) && isObject(out[key]) ? merged(out[key], value) : value;
  }
  return out;
}

/** Return a line for each press below the controls, and `say(text, key)`, which shows the text in the place of its key's. */
function spoken() {
  const line = make("div", { className: "nbagent-line", role: "status", "aria-live": "polite" });
  const shown = new Map();
  const say = (text, key = "") => {
    shown.get(key)?.remove();
    shown.delete(key);
    if (!text) return;
    shown.set(key, make("div", { textContent: key && !text.startsWith(key) ? `${key}: ${text}` : text }));
    line.append(shown.get(key));
  };
  return { line, say };
}

const WAITS_MS = 1500; // without an answer for so long in a turn that hears nothing, a person is told that it waits

/** The link of one view to the kernel: the state, and commands with their replies. */
class Link {
  constructor(model, wanted, onState, onWait) {
    this.model = model;
    this.wanted = [...wanted, "turn"];
    this.onState = onState;
    this.onWait = onWait;
    this.parts = model.get("start") ?? {};
    this.seq = null;
    this.number = 0;
    this.prefix = Math.random().toString(36).slice(2, 8);
    this.pending = new Map();
    this.take = (message) => this.receive(message);
    model.on("msg:custom", this.take);
    this.hello();
  }

  hello() {
    this.model.send({ kind: "hello", version: 1, least: 1, client: "widget", parts: this.wanted });
  }

  receive(message) {
    if (!isObject(message)) return;
    if (message.kind === "snapshot") {
      this.seq = message.seq;
      this.parts = message.parts;
      this.onState(this.parts);
    } else if (message.kind === "delta" && this.seq !== null) {
      if (message.seq !== this.seq + 1) return this.hello();
      this.seq = message.seq;
      this.parts = merged(this.parts, message.parts);
      this.onState(this.parts);
    } else if (message.kind === "ping") {
      this.model.send({ kind: "pong", token: message.token, approvals: false });
    } else if (message.kind === "mismatch") {
      this.onWait(message.line);
    } else if (message.kind === "reply") {
      this.answered(message);
    }
  }

  /** Send a command; the promise holds its last reply: ok or error. `key` is that of its line. */
  command(name, fields, key = "") {
    this.number += 1;
    const id = `${this.prefix}-${this.number}`;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (this.deaf()) this.onWait("Sent; it is done when the cell ends.", key);
      }, WAITS_MS);
      this.pending.set(id, { resolve, timer, key });
      this.model.send({ kind: "command", id, name, ...fields });
    });
  }

  /** Whether a turn runs in which the kernel handles nothing that is sent. */
  deaf() {
    const turn = this.parts.turn ?? { status: "idle" };
    return turn.status !== "idle" && turn.delivers !== true;
  }

  answered(reply) {
    const waiting = this.pending.get(reply.id);
    if (waiting === undefined) return;
    clearTimeout(waiting.timer);
    if (reply.status === "queued") {
      waiting.waited = true;
      return this.onWait(reply.line, waiting.key);
    }
    this.pending.delete(reply.id);
    waiting.resolve({ ...reply, waited: waiting.waited === true });
  }

  close() {
    this.model.off("msg:custom", this.take);
    for (const { timer } of this.pending.values()) clearTimeout(timer);
    this.pending.clear();
  }
}

/**
 * The wire: what the kernel sends, what the panel sends, and the state both speak of (docs/panel-protocol.md).
 *
 * Tested with the JSON files in tests/fixtures/bundles, which the Python side loads too. Whatever arrives is read
 * once, here: a missing or odd field becomes an empty one, so that an older or newer kernel cannot break the panel.
 */

export const TARGET = 'nbagent';
export const VERSION = 1;
export const LEAST_VERSION = 1;
/** Most cell ids in one `cells` command. */
export const MAX_CELLS = 200;
/** Rows of a page that is asked for; most that may be asked for. */
export const PAGE_ROWS = 50;
export const MAX_PAGE_ROWS = 200;

/** What a context holds, in the order of `%context`; each has a colour of its own. */
export const CATEGORIES: readonly string[] = [
  'system',
  'tools',
  'skills',
  'memory',
  'instructions',
  'summary',
  'messages',
  'thinking',
  'images',
  'tool results',
  'notebook',
  'other'
];

/** The hues of `%context` for them, in the same order: far apart for neighbours. */
export const HUES: readonly number[] = [
  210, 30, 120, 280, 0, 180, 55, 330, 90, 250, 150, 15
];

export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = { [key: string]: Json };

export interface SessionPart {
  readonly name: string;
  readonly package: string;
  readonly trouble: string;
  readonly replay: boolean;
  /** Commands that the kernel would refuse now, and why; none from an older kernel. */
  readonly refused: readonly Refusal[];
}

export interface Refusal {
  readonly name: string;
  readonly line: string;
}

/** Sizes are tokens; `cacheHitRate` is a share; the categories add up to `usedTokens`. */
export interface GaugePart {
  readonly model: string;
  readonly policy: string;
  /** The policies there are; empty from an older kernel. */
  readonly policies: readonly string[];
  readonly mode: string;
  readonly windowTokens: number;
  readonly thresholdTokens: number;
  readonly usedTokens: number;
  readonly level: number;
  readonly categories: readonly (readonly [string, number])[];
  readonly cacheHitRate: number | null;
  readonly costUsd: number;
  readonly estimated: boolean;
}

export interface TurnPart {
  readonly turn: string;
  readonly number: number;
  readonly status: string;
  readonly step: number;
  readonly activity: string;
  readonly outcome: string;
  readonly delivers: boolean;
}

export interface CatalogPart {
  readonly revision: number;
  readonly total: number;
  readonly visible: number;
  readonly promptTokens: number;
  readonly problems: number;
}

export interface TreePart {
  readonly revision: number;
  readonly total: number;
  readonly current: number;
  readonly stale: number;
  readonly leaf: string;
}

/** A sub-agent: `calls` counts its tool calls, `tokens` is the size of its own context. */
export interface AgentRow {
  readonly agent: string;
  readonly name: string;
  readonly status: string;
  readonly activity: string;
  readonly calls: number;
  readonly tokens: number;
  readonly costUsd: number;
}

export interface AgentsPart {
  readonly total: number;
  readonly rows: readonly AgentRow[];
}

export interface CompactionPart {
  readonly entry: string;
  readonly reason: string;
  readonly beforeTokens: number;
  readonly afterTokens: number;
  readonly lost: number | null;
}

export interface Choice {
  readonly answer: string;
  readonly label: string;
}

export interface ApprovalPart {
  readonly approval: string;
  readonly tool: string;
  readonly text: string;
  readonly moreChars: number;
  readonly choices: readonly Choice[];
  /** The question that was answered last in some window, and the words of that button. */
  readonly answered: string;
  readonly answer: string;
}

export interface WaitingRow {
  readonly id: string;
  readonly name: string;
}

export interface QueuePart {
  readonly total: number;
  readonly rows: readonly WaitingRow[];
}

/** Everything that the panel shows without asking. */
export interface PanelState {
  readonly session: SessionPart;
  readonly gauge: GaugePart;
  readonly turn: TurnPart;
  readonly catalog: CatalogPart;
  readonly tree: TreePart;
  readonly agents: AgentsPart;
  readonly compaction: CompactionPart;
  readonly approval: ApprovalPart;
  readonly queue: QueuePart;
}

export interface SkillRow {
  readonly name: string;
  readonly source: string;
  readonly path: string;
  readonly visible: boolean;
  readonly on: boolean;
  readonly reason: string;
  readonly tokens: number;
  readonly uses: number;
  readonly description: string;
}

export interface TurnRow {
  readonly turn: string;
  readonly number: number;
  readonly parent: string;
  readonly cell: string;
  readonly prompt: string;
  readonly outcome: string;
  readonly model: string;
  readonly steps: number;
  readonly costUsd: number;
  readonly current: boolean;
  readonly leaf: boolean;
  readonly stale: boolean;
  readonly forked: boolean;
  /** A hand-off note stands in the place of its prompt. */
  readonly compacted: boolean;
}

export interface HitRow {
  readonly path: string;
  readonly relative: string;
  readonly startLine: number;
  readonly endLine: number;
  readonly score: number;
  readonly snippet: string;
  readonly date: string;
  readonly why: string;
}

export interface LostRow {
  readonly kind: string;
  readonly text: string;
}

export interface Page<Row> {
  readonly revision: number;
  readonly start: number;
  readonly total: number;
  readonly rows: readonly Row[];
}

export interface SearchResult {
  readonly query: string;
  readonly note: string;
  readonly rows: readonly HitRow[];
}

export interface ReadResult {
  readonly path: string;
  readonly text: string;
  readonly startLine: number;
  readonly totalLines: number;
}

export interface CompactionResult {
  readonly applied: boolean;
  readonly reason: string;
  readonly policy: string;
  readonly beforeTokens: number;
  readonly afterTokens: number;
  readonly note: string;
  readonly verbatim: number;
  readonly reachable: number;
  readonly lost: number;
  /** What the kernel made it from; handed back with `compact`, which is refused when the conversation moved. */
  readonly base: string;
  readonly rows: readonly LostRow[];
}

// ---------------------------------------------------------------- messages

export interface Welcome {
  readonly kind: 'welcome';
  readonly version: number;
  readonly least: number;
  readonly package: string;
}

export interface Snapshot {
  readonly kind: 'snapshot';
  readonly version: number;
  readonly seq: number;
  readonly parts: JsonObject;
}

export interface Delta {
  readonly kind: 'delta';
  readonly seq: number;
  readonly parts: JsonObject;
}

export interface Mismatch {
  readonly kind: 'mismatch';
  readonly version: number;
  readonly least: number;
  readonly line: string;
}

export interface Ping {
  readonly kind: 'ping';
  readonly token: string;
}

export interface Reply {
  readonly kind: 'reply';
  readonly id: string;
  readonly status: 'ok' | 'queued' | 'error';
  readonly line: string;
  readonly result: JsonObject;
}

/** What this side does not know; it is passed over. */
export interface Unknown {
  readonly kind: 'unknown';
}

export type KernelMessage =
  Welcome | Snapshot | Delta | Mismatch | Ping | Reply | Unknown;

export type FrontMessage = JsonObject & { kind: 'hello' | 'pong' | 'command' };

/** Return what the kernel sent, as a value; never throws. */
export function readMessage(data: unknown): KernelMessage {
  const m = object(data);
  switch (m.kind) {
    case 'welcome':
      return {
        kind: 'welcome',
        version: number(m.version),
        least: number(m.least),
        package: text(m.package)
      };
    case 'snapshot':
      return {
        kind: 'snapshot',
        version: number(m.version),
        seq: number(m.seq),
        parts: object(m.parts)
      };
    case 'delta':
      return { kind: 'delta', seq: number(m.seq), parts: object(m.parts) };
    case 'mismatch':
      return {
        kind: 'mismatch',
        version: number(m.version),
        least: number(m.least),
        line: text(m.line)
      };
    case 'ping':
      return { kind: 'ping', token: text(m.token) };
    case 'reply':
      return {
        kind: 'reply',
        id: text(m.id),
        status: m.status === 'ok' || m.status === 'queued' ? m.status : 'error',
        line: text(m.line),
        result: object(m.result)
      };
    default:
      return { kind: 'unknown' };
  }
}

/** Return the message with which the panel says that it is there. */
export function hello(client: string, notebook: string): FrontMessage {
  return {
    kind: 'hello',
    version: VERSION,
    least: LEAST_VERSION,
    client,
    notebook
  };
}

/** Return the answer to a ping; `approvals`: questions are shown to the person. */
export function pong(token: string, approvals: boolean): FrontMessage {
  return { kind: 'pong', token, approvals };
}

/** Return a command; `fields` are those of the protocol. */
export function command(
  id: string,
  name: string,
  fields: JsonObject
): FrontMessage {
  return { ...fields, kind: 'command', id, name };
}

/** Tell whether this side speaks a version. */
export function speaks(version: number): boolean {
  return LEAST_VERSION <= version && version <= VERSION;
}

/** Return `parts` after a delta: objects field by field, all else whole. What did not change stays the same object. */
export function merged(parts: JsonObject, changes: JsonObject): JsonObject {
  const out: JsonObject = { ...parts };
  for (const [key, value] of Object.entries(changes)) {
    const before = parts[key];
    out[key] =
      isObject(value) && isObject(before) ? merged(before, value) : value;
  }
  return out;
}

// ---------------------------------------------------------------- reading

const EMPTY: JsonObject = {};

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function object(value: unknown): JsonObject {
  return isObject(value) ? value : EMPTY;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function number(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}

function numberOrNull(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value)
    ? value.filter(item => typeof item === 'string')
    : [];
}

/** Return the sizes in the order of CATEGORIES, what is not known last, whatever came first on the wire. */
function categories(sizes: JsonObject): readonly (readonly [string, number])[] {
  const place = (name: string): number =>
    CATEGORIES.includes(name) ? CATEGORIES.indexOf(name) : CATEGORIES.length;
  return Object.entries(sizes)
    .map(([name, size]) => [name, number(size)] as const)
    .sort(([a], [b]) => place(a) - place(b));
}

function rows<Row>(
  value: unknown,
  read: (row: JsonObject) => Row
): readonly Row[] {
  return Array.isArray(value)
    ? value.filter(isObject).map(row => read(row))
    : [];
}

/**
 * Reads the parts of a state. A part whose JSON is the same object as at the last call gives the same value again,
 * so that what did not change is not drawn again.
 */
export class StateReader {
  read(parts: JsonObject): PanelState {
    const state: Record<string, unknown> = {};
    for (const [name, reader] of Object.entries(PARTS)) {
      const wire = object(parts[name]);
      const known = this._known.get(name);
      const value = known?.wire === wire ? known.value : reader(wire);
      this._known.set(name, { wire, value });
      state[name] = value;
    }
    return state as unknown as PanelState;
  }

  private _known = new Map<string, { wire: JsonObject; value: unknown }>();
}

const PARTS: { [K in keyof PanelState]: (p: JsonObject) => PanelState[K] } = {
  session: p => ({
    name: text(p.name),
    package: text(p.package),
    trouble: text(p.trouble),
    replay: p.replay === true,
    refused: rows(p.refused, r => ({ name: text(r.name), line: text(r.line) }))
  }),
  gauge: p => ({
    model: text(p.model),
    policy: text(p.policy),
    policies: texts(p.policies),
    mode: text(p.mode),
    windowTokens: number(p.window_tokens),
    thresholdTokens: number(p.threshold_tokens),
    usedTokens: number(p.used_tokens),
    level: number(p.level),
    categories: categories(object(p.categories)),
    cacheHitRate: numberOrNull(p.cache_hit_rate),
    costUsd: number(p.cost_usd),
    estimated: p.estimated !== false
  }),
  turn: p => ({
    turn: text(p.turn),
    number: number(p.number),
    status: text(p.status) || 'idle',
    step: number(p.step),
    activity: text(p.activity),
    outcome: text(p.outcome),
    delivers: p.delivers === true
  }),
  catalog: p => ({
    revision: number(p.revision),
    total: number(p.total),
    visible: number(p.visible),
    promptTokens: number(p.prompt_tokens),
    problems: number(p.problems)
  }),
  tree: p => ({
    revision: number(p.revision),
    total: number(p.total),
    current: number(p.current),
    stale: number(p.stale),
    leaf: text(p.leaf)
  }),
  agents: p => ({
    total: number(p.total),
    rows: rows(p.rows, r => ({
      agent: text(r.agent),
      name: text(r.name),
      status: text(r.status),
      activity: text(r.activity),
      calls: number(r.calls),
      tokens: number(r.tokens),
      costUsd: number(r.cost_usd)
    }))
  }),
  compaction: p => ({
    entry: text(p.entry),
    reason: text(p.reason),
    beforeTokens: number(p.before_tokens),
    afterTokens: number(p.after_tokens),
    lost: numberOrNull(p.lost)
  }),
  approval: p => ({
    approval: text(p.approval),
    tool: text(p.tool),
    text: text(p.text),
    moreChars: number(p.more_chars),
    choices: rows(p.choices, r => ({
      answer: text(r.answer),
      label: text(r.label)
    })),
    answered: text(p.answered),
    answer: text(p.answer)
  }),
  queue: p => ({
    total: number(p.total),
    rows: rows(p.rows, r => ({ id: text(r.id), name: text(r.name) }))
  })
};

function page<Row>(
  result: JsonObject,
  read: (row: JsonObject) => Row
): Page<Row> {
  return {
    revision: number(result.revision),
    start: number(result.start),
    total: number(result.total),
    rows: rows(result.rows, read)
  };
}

/** Return a page of the catalog out of a reply. */
export function readSkills(result: JsonObject): Page<SkillRow> {
  return page(result, r => ({
    name: text(r.name),
    source: text(r.source),
    path: text(r.path),
    visible: r.visible === true,
    on: r.on === true,
    reason: text(r.reason),
    tokens: number(r.tokens),
    uses: number(r.uses),
    description: text(r.description)
  }));
}

/** Return a page of the turn tree, or the turns of cells, out of a reply. */
export function readTurns(result: JsonObject): Page<TurnRow> {
  return page(result, r => ({
    turn: text(r.turn),
    number: number(r.number),
    parent: text(r.parent),
    cell: text(r.cell),
    prompt: text(r.prompt),
    outcome: text(r.outcome),
    model: text(r.model),
    steps: number(r.steps),
    costUsd: number(r.cost_usd),
    current: r.current === true,
    leaf: r.leaf === true,
    stale: r.stale === true,
    forked: r.forked === true,
    compacted: r.compacted === true
  }));
}

/** Return the hits of a search out of a reply. */
export function readSearch(result: JsonObject): SearchResult {
  return {
    query: text(result.query),
    note: text(result.note),
    rows: rows(result.rows, r => ({
      path: text(r.path),
      relative: text(r.relative),
      startLine: number(r.start_line),
      endLine: number(r.end_line),
      score: number(r.score),
      snippet: text(r.snippet),
      date: text(r.date),
      why: text(r.why)
    }))
  };
}

/** Return lines of a note out of a reply. */
export function readLines(result: JsonObject): ReadResult {
  return {
    path: text(result.path),
    text: text(result.text),
    startLine: number(result.start_line),
    totalLines: number(result.total_lines)
  };
}

/** Return what a compaction did or would do out of a reply. */
export function readCompaction(result: JsonObject): CompactionResult {
  return {
    applied: result.applied === true,
    reason: text(result.reason),
    policy: text(result.policy),
    beforeTokens: number(result.before_tokens),
    afterTokens: number(result.after_tokens),
    note: text(result.note),
    verbatim: number(result.verbatim),
    reachable: number(result.reachable),
    lost: number(result.lost),
    base: text(result.base),
    rows: rows(result.rows, r => ({ kind: text(r.kind), text: text(r.text) }))
  };
}

/** Return the whole text of a question out of a reply. */
export function readQuestion(result: JsonObject): string {
  return text(result.text);
}

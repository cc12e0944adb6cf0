/** AgentSession: what the panel knows of one notebook, and what a person does with it. */

import { Signal, type ISignal } from '@lumino/signaling';

import { Lines, type KeyedLine, type Line } from './lines.js';
import type { Link, Phase } from './link.js';
import { Pager } from './pager.js';
import {
  MAX_CELLS,
  readCompaction,
  readLines,
  readQuestion,
  readSearch,
  readSkills,
  readTurns,
  StateReader,
  type CompactionResult,
  type JsonObject,
  type PanelState,
  type ReadResult,
  type Reply,
  type SearchResult,
  type SkillRow,
  type TurnRow
} from './protocol.js';

/** `absent`: nbagent is not loaded in the kernel, or there is none. */
export type SessionPhase = 'absent' | Exclude<Phase, 'lost'>;

/** What happens in the world outside of the panel. */
export interface SessionHost {
  /** Interrupt the kernel, as the stop button does. */
  interrupt: () => void;
  /** After how many milliseconds a stop that is not answered becomes an interrupt. */
  stopWaitMs: number;
  /** For how many milliseconds a line that is no error stays; without it, until the next turn. */
  lineStaysMs?: number;
  /** Return what is told when another window has answered the question. */
  answeredElsewhere?: (answer: string) => string;
}

/** Commands that run; the panel disables what would send them twice. */
export type Busy = 'preview' | 'compact' | 'undo' | 'search' | 'revert';

export class AgentSession {
  constructor(private _host: SessionHost) {
    this._lines = new Lines(() => this._changed.emit(), _host.lineStaysMs);
  }

  readonly catalog = new Pager<SkillRow>(
    async (start, count, text) => {
      const reply = await this._ask('page', {
        of: 'catalog',
        start,
        count,
        text
      });
      return reply && readSkills(reply.result);
    },
    () => this._changed.emit()
  );

  readonly tree = new Pager<TurnRow>(
    async (start, count) => {
      const reply = await this._ask('page', {
        of: 'tree',
        start,
        count,
        text: ''
      });
      return reply && readTurns(reply.result);
    },
    () => this._changed.emit(),
    true
  );

  /** Emitted when anything changed that is shown. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted with the tool when a question begins to wait for an answer, and with '' when none waits any more. */
  get asked(): ISignal<this, string> {
    return this._asked;
  }

  /** Emitted when the turns of the notebook's cells may be others. */
  get turnsChanged(): ISignal<this, void> {
    return this._turnsChanged;
  }

  get phase(): SessionPhase {
    const phase = this._link?.phase ?? 'lost';
    return phase !== 'lost' ? phase : this._looking ? 'greeting' : 'absent';
  }

  /** Why no version fits. */
  get mismatch(): string {
    return this._link?.line ?? '';
  }

  get state(): PanelState {
    return this._link?.state ?? NOTHING;
  }

  /** What was told last. */
  get line(): Line {
    return this._lines.last;
  }

  /** A line for each press, oldest first. */
  get lines(): readonly KeyedLine[] {
    return this._lines.all;
  }

  /** Why the kernel would refuse a command as things stand; '' when it would not. */
  refusal(name: string): string {
    return this.state.session.refused.find(r => r.name === name)?.line ?? '';
  }

  /** Whether the connection to the kernel is lost for now. */
  get offline(): boolean {
    return this._offline;
  }

  set offline(offline: boolean) {
    if (offline !== this._offline) {
      this._offline = offline;
      this._changed.emit();
    }
  }

  get found(): SearchResult | null {
    return this._found;
  }

  get opened(): ReadResult | null {
    return this._opened;
  }

  get preview(): CompactionResult | null {
    return this._preview;
  }

  /** Why the preview must not be applied: the conversation moved since, or a turn runs now; '' when it may. */
  get outdated(): '' | 'moved' | 'running' {
    if (this._preview === null) {
      return '';
    }
    if (this.state.turn.status !== 'idle') {
      return 'running';
    }
    const of = this._previewOf ?? this._place();
    return of === this._place() ? '' : 'moved';
  }

  /** The number of the turn that was broken off when the last kernel ended; 0 when none was. */
  get brokenOff(): number {
    return this._brokenOff;
  }

  /** The hand-off note as it is edited. */
  get note(): string {
    return this._note;
  }

  /** An edited note that a new one took the place of; '' when there is none. */
  get earlierNote(): string {
    return this._earlierNote;
  }

  /** The whole text of the question that waits, when it was asked for. */
  get question(): string {
    return this._question;
  }

  /** Turns by cell id. */
  get cells(): ReadonlyMap<string, TurnRow> {
    return this._cells;
  }

  isBusy(what: Busy): boolean {
    return this._busy.has(what);
  }

  /** Talk with another kernel; null when there is none. */
  connect(link: Link | null): void {
    this._link?.changed.disconnect(this._onLink, this);
    const { status, number } = this.state.turn;
    if (link !== null) {
      this._brokenOff = 0;
    } else if (status !== 'idle') {
      this._brokenOff = number;
    }
    this._link = link;
    this._forget();
    link?.changed.connect(this._onLink, this);
    this._onLink();
    this._turnsChanged.emit();
  }

  /** Whether the kernel is being asked for its comms; a busy one answers late. */
  lookFor(looking: boolean): void {
    this._looking = looking;
    this._changed.emit();
  }

  /** Say a line to the person that no command brought. */
  say(text: string, error = false): void {
    this._lines.say(text, error);
  }

  /** Take a line away. */
  closeLine(key: number): void {
    this._lines.close(key);
  }

  // -------------------------------------------------------------- compaction

  /**
   * Have the hand-off note written, to be edited; nothing is changed.
   *
   * A note that is there stays, unless the conversation has left it behind; what was edited of it is kept then.
   */
  async previewCompaction(focus = ''): Promise<void> {
    if (this._preview !== null && this.outdated !== 'moved') {
      return;
    }
    let place: string | null = this._place();
    const reply = await this._only(
      'preview',
      'preview_compaction',
      { focus },
      () => {
        place = null; // written when the turn has ended
      }
    );
    if (reply !== null) {
      if (this._preview !== null && this._note !== this._preview.note) {
        this._earlierNote = this._note;
      }
      this._preview = readCompaction(reply.result);
      this._previewOf = place;
      this._settle();
      this._note = this._preview.note;
      this._changed.emit();
    }
  }

  editNote(note: string): void {
    this._note = note;
    this._changed.emit();
  }

  /** Put the note that was edited before into the field; what stands there takes its place. */
  useEarlierNote(): void {
    [this._note, this._earlierNote] = [this._earlierNote, this._note];
    this._changed.emit();
  }

  dropPreview(): void {
    this._preview = this._previewOf = null;
    this._note = this._earlierNote = '';
    this._changed.emit();
  }

  /** Compact with the note as it was edited. */
  async compact(): Promise<void> {
    const base = this._preview?.base ?? '';
    const fields = { note: this._note, focus: '', base };
    if ((await this._only('compact', 'compact', fields)) !== null) {
      this.dropPreview();
    }
  }

  async undoCompaction(): Promise<void> {
    await this._only('undo', 'undo', {});
  }

  // -------------------------------------------------------------- memory

  async search(query: string): Promise<void> {
    if (query.trim() === '') {
      this._found = this._opened = null;
      this._changed.emit();
      return;
    }
    const reply = await this._only('search', 'search', { query });
    if (reply !== null) {
      this._found = readSearch(reply.result);
      this._opened = null;
      this._changed.emit();
    }
  }

  /** Show lines of a note in the panel. */
  async read(path: string, line: number): Promise<void> {
    const reply = await this._ask('read', { path, line });
    if (reply !== null) {
      this._opened = readLines(reply.result);
      this._changed.emit();
    }
  }

  closeNote(): void {
    this._opened = null;
    this._changed.emit();
  }

  // -------------------------------------------------------------- turns, skills, sub-agents

  /** Stop the running turn; when no answer comes, interrupt the kernel. */
  async stop(): Promise<void> {
    const link = this._link;
    if (link === null || link.phase !== 'ready') {
      this._host.interrupt(); // nobody can be asked, but the server interrupts
      return;
    }
    const timer = setTimeout(
      () => this._host.interrupt(),
      this._host.stopWaitMs
    );
    const key = this._lines.begin('stop');
    const reply = await link.run('stop', {}, () => undefined);
    clearTimeout(timer);
    this._lines.end(key, 'stop', reply);
  }

  /** Tell the running turn something; returns whether it was taken. */
  async steer(text: string): Promise<boolean> {
    return await this._tell('steer', { text });
  }

  async revert(turn: string): Promise<void> {
    await this._only('revert', 'revert', { turn });
  }

  async setSkill(skill: string, on: boolean): Promise<void> {
    await this._ask('set_skill', { skill, on });
    await this.catalog.refresh();
  }

  async set(fields: JsonObject): Promise<void> {
    await this._ask('set', fields);
  }

  async answer(approval: string, answer: string): Promise<void> {
    this._answeredHere = approval;
    await this._ask('answer', { approval, answer });
  }

  /** Have the whole text of the question that waits. */
  async readQuestion(approval: string): Promise<void> {
    const reply = await this._ask('question', { approval });
    if (reply !== null && this.state.approval.approval === approval) {
      this._question = readQuestion(reply.result);
      this._changed.emit();
    }
  }

  /** Tell a sub-agent something; returns whether it was taken. */
  async sendTo(agent: string, text: string): Promise<boolean> {
    return await this._tell('send', { agent, text });
  }

  async stopAgent(agent: string): Promise<void> {
    await this._ask('stop_agent', { agent });
  }

  /** Learn the turns of these cells. */
  async lookAtCells(ids: readonly string[]): Promise<void> {
    const ticket = ++this._cellsTicket;
    const found = new Map<string, TurnRow>();
    for (let i = 0; i < ids.length; i += MAX_CELLS) {
      const cells = ids.slice(i, i + MAX_CELLS);
      const reply = await this._link?.run('cells', { cells });
      if (reply?.status !== 'ok') {
        return;
      }
      for (const row of readTurns(reply.result).rows) {
        found.set(row.cell, row);
      }
    }
    if (ticket === this._cellsTicket) {
      this._cells = found;
      this._changed.emit();
    }
  }

  // -------------------------------------------------------------- inside

  /** Where the conversation is: the turn and the compaction in force. */
  private _place(): string {
    return `${this.state.tree.leaf} ${this.state.compaction.entry}`;
  }

  /** Know what the preview is of, as soon as no turn runs. */
  private _settle(): void {
    if (this._preview !== null && this.state.turn.status === 'idle') {
      this._previewOf ??= this._place();
    }
  }

  private _onLink(): void {
    const { catalog, tree, approval, turn } = this.state;
    if (this.phase === 'ready') {
      this._settle();
      if (turn.status === 'running' && !this._running) {
        this._lines.keep(line => line.error || line.waits); // the others were of the turn before
      }
      if (turn.status === 'idle' && this._running) {
        this._lines.keep(line => line.error || line.name !== 'stop'); // it has stopped
      }
      this._running = turn.status !== 'idle';
      if (catalog.revision !== this._catalogRevision) {
        this._catalogRevision = catalog.revision;
        void this.catalog.refresh();
      }
      if (tree.revision !== this._treeRevision) {
        this._treeRevision = tree.revision;
        void this.tree.refresh();
        this._turnsChanged.emit();
      }
      if (approval.approval !== this._approval) {
        const { answered, answer } = approval;
        if (answered !== '' && answered === this._approval) {
          this._toldElsewhere(answered, answer);
        }
        this._approval = approval.approval;
        this._question = '';
        this._asked.emit(approval.approval === '' ? '' : approval.tool);
      }
    }
    this._changed.emit();
  }

  private _forget(): void {
    if (this._approval !== '') {
      this._asked.emit('');
    }
    this.catalog.clear();
    this.tree.clear();
    this._catalogRevision = this._treeRevision = -1;
    this._approval = this._question = '';
    this._found = this._opened = this._preview = null;
    this._previewOf = null;
    this._running = false;
    this._note = this._earlierNote = '';
    this._cells = new Map();
    this._cellsTicket++;
    this._lines.keep(() => false);
  }

  /** Say that another window has answered, unless it was this one. */
  private _toldElsewhere(answered: string, answer: string): void {
    const line = this._host.answeredElsewhere?.(answer) ?? '';
    if (answered !== this._answeredHere && line !== '') {
      this.say(line);
    }
  }

  /** Run a command of which one at a time makes sense. */
  private async _only(
    what: Busy,
    name: string,
    fields: JsonObject,
    queued?: () => void
  ): Promise<Reply | null> {
    if (this._busy.has(what)) {
      return null;
    }
    this._busy.add(what);
    this._changed.emit();
    try {
      return await this._ask(name, fields, queued);
    } finally {
      this._busy.delete(what);
      this._changed.emit();
    }
  }

  /** Run a command and say its line; returns null when it failed, or the kernel is another by then. */
  private async _ask(
    name: string,
    fields: JsonObject,
    queued: () => void = () => undefined
  ): Promise<Reply | null> {
    const link = this._link;
    if (link === null) {
      return null;
    }
    const silent = QUIET.includes(name);
    const key = silent ? 0 : this._lines.begin(name);
    const reply = await link.run(name, fields, line => {
      queued();
      this._lines.wait(key, name, line);
    });
    if (link !== this._link) {
      return null;
    }
    if (!silent) {
      this._lines.end(key, name, reply);
    } else if (reply.line !== '') {
      this.say(reply.line, reply.status === 'error');
    }
    return reply.status === 'ok' ? reply : null;
  }

  /** Send words; true once they wait to be heard. A second reply says whether they were; its line is said then. */
  private _tell(name: string, fields: JsonObject): Promise<boolean> {
    const link = this._link;
    if (link === null) {
      return Promise.resolve(false);
    }
    const key = this._lines.another(); // each message is heard, or not, by itself
    return new Promise(resolve => {
      const queued = (line: string): void => {
        this._lines.wait(key, name, line);
        resolve(true);
      };
      void link.run(name, fields, queued).then(reply => {
        if (link === this._link) {
          this._lines.end(key, name, reply);
        }
        resolve(reply.status === 'ok');
      });
    });
  }

  private _changed = new Signal<this, void>(this);
  private _lines: Lines;
  private _asked = new Signal<this, string>(this);
  private _turnsChanged = new Signal<this, void>(this);
  private _link: Link | null = null;
  private _offline = false;
  private _answeredHere = '';
  private _busy = new Set<Busy>();
  private _found: SearchResult | null = null;
  private _opened: ReadResult | null = null;
  private _preview: CompactionResult | null = null;
  private _note = '';
  private _earlierNote = '';
  /** What the preview is of; null while that is not known. */
  private _previewOf: string | null = null;
  private _brokenOff = 0;
  private _running = false;
  private _looking = false;
  private _question = '';
  private _approval = '';
  private _catalogRevision = -1;
  private _treeRevision = -1;
  private _cellsTicket = 0;
  private _cells: ReadonlyMap<string, TurnRow> = new Map();
}

/** Commands that a person does not press: they say nothing as a rule. */
const QUIET: readonly string[] = ['page', 'question'];
const NOTHING: PanelState = new StateReader().read({});

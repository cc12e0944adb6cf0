/** AgentSession: what the panel knows of one notebook, and what a person does with it. */

import { Signal, type ISignal } from '@lumino/signaling';

import { CellTurns } from './cells.js';
import { NoteDraft, placeOf } from './draft.js';
import type { Kept } from './kept.js';
import { Lines, type KeyedLine, type Line } from './lines.js';
import type { Link, Phase } from './link.js';
import { MemorySearch } from './search.js';
import { Sender, type Busy } from './sender.js';
import { Pager } from './pager.js';
import {
  readQuestion,
  readSkills,
  readTurns,
  StateReader,
  type JsonObject,
  type PanelState,
  type SkillRow,
  type TurnRow
} from './protocol.js';

/** `absent`: nbagent is not loaded in the kernel, or there is none. `elsewhere`: another notebook has the kernel's comms. */
export type SessionPhase = 'absent' | 'elsewhere' | Exclude<Phase, 'lost'>;

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
  /** What is told of a press while the connection is lost. */
  offlineLine?: string;
  /** Where the note that is edited stands, so that it outlives the page. */
  keptDraft?: Kept;
}

export class AgentSession {
  constructor(private _host: SessionHost) {
    const changed = (): void => this._changed.emit();
    this._lines = new Lines(changed, _host.lineStaysMs);
    this._sender = new Sender(
      this._lines,
      () => this._link,
      changed,
      () => (this._offline ? (_host.offlineLine ?? '') : '')
    );
    this.memory = new MemorySearch(this._sender, changed);
    this.draft = new NoteDraft(changed, _host.keptDraft);
  }

  readonly memory: MemorySearch;

  /** What stands in the panel's fields and was not sent, by field: it outlives a panel that is put away. */
  readonly typed = new Map<string, string>();

  readonly draft: NoteDraft;

  readonly catalog = new Pager<SkillRow>(
    async (start, count, text) => {
      const reply = await this._page('catalog', start, count, text);
      return reply && readSkills(reply.result);
    },
    () => this._changed.emit()
  );

  readonly tree = new Pager<TurnRow>(
    async (start, count) => {
      const reply = await this._page('tree', start, count, '');
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
    if (phase !== 'lost') {
      return phase;
    }
    return this.elsewhere ? 'elsewhere' : this._looking ? 'greeting' : 'absent';
  }

  /** Whether another notebook of this page has the same kernel, and its comms. */
  elsewhere = false;

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

  /** Why the note must not be applied as things stand; '' when it may. */
  get outdated(): '' | 'moved' | 'running' {
    return this.draft.outdated(this.state);
  }

  /** The number of the turn that was broken off when the last kernel ended; 0 when none was. */
  get brokenOff(): number {
    return this._brokenOff;
  }

  /** The whole text of the question that waits, when it was asked for. */
  get question(): string {
    return this._question;
  }

  /** Turns by cell id. */
  get cells(): ReadonlyMap<string, TurnRow> {
    return this._cells.rows;
  }

  isBusy(what: Busy): boolean {
    return this._sender.isBusy(what);
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
    if (this.draft.preview !== null && this.outdated !== 'moved') {
      return;
    }
    let place: string | null = placeOf(this.state);
    const reply = await this._sender.only(
      'preview',
      'preview_compaction',
      { focus, again: this.draft.cancelled },
      () => {
        place = null; // written when the turn has ended
      }
    );
    if (reply !== null) {
      this.draft.take(reply.result, place);
      this.draft.settle(this.state);
      this._changed.emit();
    }
  }

  /** Compact with the note as it was edited. */
  async compact(): Promise<void> {
    const { preview, note } = this.draft;
    const base = preview?.base ?? '';
    const fields = { note, focus: '', base };
    if ((await this._sender.only('compact', 'compact', fields)) !== null) {
      this.draft.drop();
    }
  }

  async undoCompaction(): Promise<void> {
    await this._sender.only('undo', 'undo', {});
  }

  // -------------------------------------------------------------- turns, skills, sub-agents

  /** Stop the running turn; when no answer comes, interrupt the kernel. */
  async stop(): Promise<void> {
    const link = this._link;
    if (link === null || link.phase !== 'ready') {
      this._host.interrupt(); // nobody can be asked, but the server interrupts
      return;
    }
    if (this._stopping) {
      return; // more presses would only be told that nothing runs any more
    }
    this._stopping = true;
    const timer = setTimeout(() => {
      this._stopping = false; // it may be pressed again
      this._host.interrupt();
    }, this._host.stopWaitMs);
    const key = this._lines.begin('stop');
    const reply = await link.run('stop', {}, () => undefined);
    clearTimeout(timer);
    this._stopping = false;
    this._lines.end(key, 'stop', reply);
  }

  /** Tell the running turn something; returns whether it was taken. */
  async steer(text: string): Promise<boolean> {
    return await this._sender.tell('steer', { text });
  }

  async revert(turn: string): Promise<void> {
    await this._sender.only('revert', 'revert', { turn });
  }

  async setSkill(skill: string, on: boolean): Promise<void> {
    await this._sender.ask('set_skill', { skill, on });
    await this.catalog.refresh();
  }

  async set(fields: JsonObject): Promise<void> {
    await this._sender.ask('set', fields);
  }

  async answer(approval: string, answer: string): Promise<void> {
    if (this._answeredHere === approval) {
      return; // a second press would be told that it was answered
    }
    this._answeredHere = approval;
    const reply = await this._sender.ask('answer', { approval, answer });
    if (reply === null && this.state.approval.approval === approval) {
      this._answeredHere = ''; // it was not taken, and still waits
    }
  }

  /** Have the whole text of the question that waits. */
  async readQuestion(approval: string): Promise<void> {
    const reply = await this._sender.ask('question', { approval });
    if (reply !== null && this.state.approval.approval === approval) {
      this._question = readQuestion(reply.result);
      this._changed.emit();
    }
  }

  /** Tell a sub-agent something; returns whether it was taken. */
  async sendTo(agent: string, text: string): Promise<boolean> {
    return await this._sender.tell('send', { agent, text });
  }

  async stopAgent(agent: string): Promise<void> {
    await this._sender.ask('stop_agent', { agent });
  }

  /** Learn the turns of these cells. */
  async lookAtCells(ids: readonly string[]): Promise<void> {
    if (this._link !== null && (await this._cells.look(this._link, ids))) {
      this._changed.emit();
    }
  }

  // -------------------------------------------------------------- inside

  private _onLink(): void {
    const { catalog, tree, approval, turn } = this.state;
    if (this.phase === 'ready') {
      this.draft.settle(this.state);
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

  private _page(of: string, start: number, count: number, text: string) {
    return this._sender.ask('page', { of, start, count, text });
  }

  private _forget(): void {
    if (this._approval !== '') {
      this._asked.emit('');
    }
    this.catalog.clear();
    this.tree.clear();
    this._catalogRevision = this._treeRevision = -1;
    this._approval = this._question = this._answeredHere = '';
    this.memory.clear();
    this._running = false;
    this._cells.clear();
    this._lines.keep(() => false);
  }

  /** Say that another window has answered, unless it was this one. */
  private _toldElsewhere(answered: string, answer: string): void {
    const line = this._host.answeredElsewhere?.(answer) ?? '';
    if (answered !== this._answeredHere && line !== '') {
      this.say(line);
    }
  }

  private _changed = new Signal<this, void>(this);
  private _lines: Lines;
  private _sender: Sender;
  private _asked = new Signal<this, string>(this);
  private _turnsChanged = new Signal<this, void>(this);
  private _link: Link | null = null;
  private _offline = false;
  private _answeredHere = '';
  private _brokenOff = 0;
  private _running = false;
  private _stopping = false;
  private _looking = false;
  private _question = '';
  private _approval = '';
  private _catalogRevision = -1;
  private _treeRevision = -1;
  private _cells = new CellTurns();
}

const NOTHING: PanelState = new StateReader().read({});

/** NoteDraft: the hand-off note that was written, as a person edits it before it is applied. */

import type { Kept } from './kept.js';
import {
  isObject,
  readCompaction,
  type CompactionResult,
  type JsonObject,
  type PanelState
} from './protocol.js';

export class NoteDraft {
  /** `changed` is called when anything changed that is shown; what is edited stands in `kept` too. */
  constructor(
    private _changed: () => void,
    private _kept?: Kept
  ) {
    this._recall();
  }

  /** The preview that the note is of; null when there is none. */
  get preview(): CompactionResult | null {
    return this._preview;
  }

  /** The hand-off note as it is edited. */
  get note(): string {
    return this._note;
  }

  /** An edited note that a new one took the place of; '' when there is none. */
  get earlierNote(): string {
    return this._earlierNote;
  }

  /** Why the preview must not be applied: the conversation moved since, or a turn runs now; '' when it may. */
  outdated(state: PanelState): '' | 'moved' | 'running' {
    if (this._preview === null) {
      return '';
    }
    if (state.turn.status !== 'idle') {
      return 'running';
    }
    return (this._place ?? placeOf(state)) === placeOf(state) ? '' : 'moved';
  }

  /** Take a new preview, written at `place`; null: when the turn had ended. What was edited before is kept. */
  take(result: JsonObject, place: string | null): void {
    this._setAside();
    this._cancelled = false;
    this._result = result;
    this._preview = readCompaction(result);
    this._place = place;
    this._note = this._preview.note;
    this.keep();
  }

  /** Know what the preview is of, as soon as no turn runs. */
  settle(state: PanelState): void {
    if (this._preview !== null && state.turn.status === 'idle') {
      this._place ??= placeOf(state);
    }
  }

  edit(note: string): void {
    this._note = note;
    this.keep();
    this._changed();
  }

  /** Put the note that was edited before into the field; what stands there takes its place. */
  useEarlier(): void {
    [this._note, this._earlierNote] = [this._earlierNote, this._note];
    this.keep();
    this._changed();
  }

  /** Whether the note that was written last is not wanted. */
  get cancelled(): boolean {
    return this._cancelled;
  }

  /** Close the note; what was edited of it stands beside the next one. */
  close(): void {
    this._cancelled = true;
    this._setAside();
    this._end();
  }

  /** The note was applied. */
  drop(): void {
    this._earlierNote = '';
    this._end();
  }

  /** Write down what a page that is loaded again begins with. */
  keep(): void {
    const empty = this._preview === null && this._earlierNote === '';
    const kept = {
      result: this._result,
      place: this._place,
      note: this._note,
      earlierNote: this._earlierNote
    };
    this._kept?.write(empty ? null : JSON.stringify(kept));
  }

  private _end(): void {
    this._result = this._preview = this._place = null;
    this._note = '';
    this.keep();
    this._changed();
  }

  private _setAside(): void {
    if (this._preview !== null && this._note !== this._preview.note) {
      this._earlierNote = this._note;
    }
  }

  private _recall(): void {
    let kept: unknown = null;
    try {
      kept = JSON.parse(this._kept?.read() ?? 'null');
    } catch {
      // what another version wrote
    }
    if (!isObject(kept)) {
      return;
    }
    const { result, place, note, earlierNote } = kept;
    if (isObject(result) && typeof note === 'string') {
      this._result = result;
      this._preview = readCompaction(result);
      this._note = note;
      this._place = typeof place === 'string' ? place : null;
    }
    this._earlierNote = typeof earlierNote === 'string' ? earlierNote : '';
  }

  private _result: JsonObject | null = null;
  private _preview: CompactionResult | null = null;
  private _cancelled = false;
  private _note = '';
  private _earlierNote = '';
  /** What the preview is of; null while that is not known. */
  private _place: string | null = null;
}

/** Where the conversation is: the turn and the compaction in force. */
export function placeOf(state: PanelState): string {
  return `${state.tree.leaf} ${state.compaction.entry}`;
}

/** NoteDraft: the hand-off note that was written, as a person edits it before it is applied. */

import type { CompactionResult, PanelState } from './protocol.js';

export class NoteDraft {
  /** `changed` is called when anything changed that is shown. */
  constructor(private _changed: () => void) {}

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
  take(preview: CompactionResult, place: string | null): void {
    if (this._preview !== null && this._note !== this._preview.note) {
      this._earlierNote = this._note;
    }
    this._preview = preview;
    this._place = place;
    this._note = preview.note;
  }

  /** Know what the preview is of, as soon as no turn runs. */
  settle(state: PanelState): void {
    if (this._preview !== null && state.turn.status === 'idle') {
      this._place ??= placeOf(state);
    }
  }

  edit(note: string): void {
    this._note = note;
    this._changed();
  }

  /** Put the note that was edited before into the field; what stands there takes its place. */
  useEarlier(): void {
    [this._note, this._earlierNote] = [this._earlierNote, this._note];
    this._changed();
  }

  drop(): void {
    this.clear();
    this._changed();
  }

  /** Drop without telling: the kernel is another. */
  clear(): void {
    this._preview = this._place = null;
    this._note = this._earlierNote = '';
  }

  private _preview: CompactionResult | null = null;
  private _note = '';
  private _earlierNote = '';
  /** What the preview is of; null while that is not known. */
  private _place: string | null = null;
}

/** Where the conversation is: the turn and the compaction in force. */
export function placeOf(state: PanelState): string {
  return `${state.tree.leaf} ${state.compaction.entry}`;
}

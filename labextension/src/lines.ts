/** Lines: what each press came to, one line for a press, so that none takes the place of another. */

import type { Reply } from './protocol.js';

/** What was told; an error is told at once by a screen reader. */
export interface Line {
  readonly text: string;
  readonly error: boolean;
}

/** The line of one press: `name` is its command, '' for none; `waits`: it is not done yet. */
export interface KeyedLine extends Line {
  readonly key: number;
  readonly name: string;
  readonly waits: boolean;
}

const NO_LINE: Line = { text: '', error: false };

export class Lines {
  /** `staysMs`: for how long a line stays that is no error and waits for nothing; undefined for ever. */
  constructor(
    private _changed: () => void,
    private _staysMs: number | undefined
  ) {}

  /** A line for each press, oldest first. */
  get all(): readonly KeyedLine[] {
    return this._lines;
  }

  /** What was told last. */
  get last(): Line {
    const last = this._lines.at(-1);
    return last ? { text: last.text, error: last.error } : NO_LINE;
  }

  /** Say what no command brought; an empty text takes it away. */
  say(text: string, error: boolean): void {
    this._tell({ key: 0, name: '', text, error, waits: false });
  }

  /** Return the key of a press that begins; what the last one of its kind came to is told no more. */
  begin(name: string): number {
    this.keep(line => line.waits || line.name !== name);
    return this.another();
  }

  /** Return the key of a press beside others of its kind. */
  another(): number {
    return ++this._lastKey;
  }

  wait(key: number, name: string, text: string): void {
    this._tell({ key, name, text, error: false, waits: true });
  }

  end(key: number, name: string, reply: Reply): void {
    const error = reply.status === 'error';
    this._tell({ key, name, text: reply.line, error, waits: false });
  }

  /** Take a line away. */
  close(key: number): void {
    this.keep(line => line.key !== key);
  }

  /** Take away all lines but those for which `keep` is true. */
  keep(keep: (line: KeyedLine) => boolean): void {
    for (const { key } of this._lines.filter(line => !keep(line))) {
      clearTimeout(this._timers.get(key));
      this._timers.delete(key);
    }
    const kept = this._lines.filter(keep);
    if (kept.length < this._lines.length) {
      this._lines = kept;
      this._changed();
    }
  }

  /** Show a line in the place of the one with its key. */
  private _tell(line: KeyedLine): void {
    const { key } = line;
    clearTimeout(this._timers.get(key));
    this._timers.delete(key);
    // What was pressed many times, and came to the same, is told once.
    this.keep(other => other.waits || !isSame(other, line));
    const others = this._lines.filter(other => other.key !== key);
    this._lines = line.text === '' ? others : [...others, line];
    if (line.text !== '' && !line.error && !line.waits && this._staysMs) {
      this._timers.set(
        key,
        setTimeout(() => this.close(key), this._staysMs)
      );
    }
    this._changed();
  }

  private _lines: readonly KeyedLine[] = [];
  private _timers = new Map<number, ReturnType<typeof setTimeout>>();
  private _lastKey = 0;
}

function isSame(one: KeyedLine, other: KeyedLine): boolean {
  return (
    one.key !== other.key &&
    one.name === other.name &&
    one.text === other.text &&
    one.error === other.error
  );
}

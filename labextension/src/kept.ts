/** What this browser keeps when the page is loaded again: the comm of each kernel, and notes that are being edited. */

/** One text that outlives the page. */
export interface Kept {
  read: () => string | null;
  /** null takes it away. */
  write: (text: string | null) => void;
}

/** What of `Storage` is used. */
export type Shelf = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

const COMMS = 'nbagent:comms';
const MOST_COMMS = 30;

/** Return the text under `key`, which may change; nothing is kept where the browser refuses, or has no room. */
export function keptText(shelf: () => Shelf, key: () => string): Kept {
  return {
    read: () => tried(() => shelf().getItem(key())) ?? null,
    write: text => {
      tried(() =>
        text === null ? shelf().removeItem(key()) : shelf().setItem(key(), text)
      );
    }
  };
}

/** Which comm each kernel has, by the kernel's id; the oldest are forgotten. */
export class KeptComms {
  constructor(shelf: () => Shelf) {
    this._kept = keptText(shelf, () => COMMS);
  }

  /** Return the comm of a kernel; undefined when none is known. */
  of(kernelId: string): string | undefined {
    return this._read().find(([kernel]) => kernel === kernelId)?.[1];
  }

  /** Keep the comm of a kernel; null: it has none. */
  keep(kernelId: string, commId: string | null): void {
    const others = this._read().filter(([kernel]) => kernel !== kernelId);
    const all = commId === null ? others : [...others, [kernelId, commId]];
    this._kept.write(JSON.stringify(all.slice(-MOST_COMMS)));
  }

  private _read(): readonly (readonly [string, string])[] {
    const found = tried((): unknown => JSON.parse(this._kept.read() ?? '[]'));
    return Array.isArray(found) ? found.filter(isPair) : [];
  }

  private _kept: Kept;
}

function isPair(value: unknown): value is [string, string] {
  return (
    Array.isArray(value) &&
    value.length === 2 &&
    value.every(item => typeof item === 'string')
  );
}

function tried<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined; // storage is switched off or full, or holds what another version wrote
  }
}

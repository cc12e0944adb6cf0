/** MemorySearch: what a search of the notes found, and the lines that were opened from it. */

import {
  readLines,
  readSearch,
  type ReadResult,
  type SearchResult
} from './protocol.js';
import type { Sender } from './sender.js';

export class MemorySearch {
  /** `changed` is called when anything changed that is shown. */
  constructor(
    private _sender: Sender,
    private _changed: () => void
  ) {}

  get found(): SearchResult | null {
    return this._found;
  }

  get opened(): ReadResult | null {
    return this._opened;
  }

  async search(query: string): Promise<void> {
    if (query.trim() === '') {
      this.clear();
      this._changed();
      return;
    }
    const reply = await this._sender.only('search', 'search', { query });
    if (reply !== null) {
      this._found = readSearch(reply.result);
      this._opened = null;
      this._changed();
    }
  }

  /** Show lines of a note in the panel. */
  async read(path: string, line: number): Promise<void> {
    const reply = await this._sender.ask('read', { path, line });
    if (reply !== null) {
      this._opened = readLines(reply.result);
      this._changed();
    }
  }

  closeNote(): void {
    this._opened = null;
    this._changed();
  }

  /** Forget without telling: the kernel is another. */
  clear(): void {
    this._found = this._opened = null;
  }

  private _found: SearchResult | null = null;
  private _opened: ReadResult | null = null;
}

/** Pager: rows of the kernel's catalog or turn tree, of which one stretch is here. */

import type { Page } from './protocol.js';
import { MAX_PAGE_ROWS, PAGE_ROWS } from './protocol.js';

/** Asks for rows; null when the kernel gave an error. A negative `start` counts from the end. */
export type FetchPage<Row> = (
  start: number,
  count: number,
  text: string
) => Promise<Page<Row> | null>;

export class Pager<Row> {
  /** `fromEnd`: the last rows come first, and the earlier ones on request. */
  constructor(
    private _fetch: FetchPage<Row>,
    private _changed: () => void,
    readonly fromEnd = false
  ) {}

  /** Whether rows were asked for. */
  get wanted(): boolean {
    return this._wanted;
  }

  get loading(): boolean {
    return this._running > 0;
  }

  get rows(): readonly Row[] {
    return this._rows;
  }

  get start(): number {
    return this._start;
  }

  get total(): number {
    return this._total;
  }

  get text(): string {
    return this._text;
  }

  /** How many rows there are before, or after, those that are here. */
  get more(): number {
    return this.fromEnd
      ? this._start
      : this._total - this._start - this._rows.length;
  }

  /** Look for `text`, from the beginning. */
  async search(text: string): Promise<void> {
    this._text = text;
    await this._load(this.fromEnd ? -PAGE_ROWS : 0, PAGE_ROWS);
  }

  /** Have the first page, unless it is here. */
  async want(): Promise<void> {
    if (!this._wanted) {
      await this.search(this._text);
    }
  }

  /** Have the next page besides what is here. */
  async wantMore(): Promise<void> {
    const count = Math.min(PAGE_ROWS, this.more);
    if (count <= 0 || this.loading) {
      return;
    }
    const start = this.fromEnd
      ? this._start - count
      : this._start + this._rows.length;
    await this._load(start, count, true);
  }

  /** Have what is here again: it is out of date. */
  async refresh(): Promise<void> {
    if (!this._wanted) {
      return;
    }
    const count = Math.max(PAGE_ROWS, this._rows.length);
    if (count > MAX_PAGE_ROWS) {
      await this.search(this._text);
    } else {
      await this._load(this.fromEnd ? -count : this._start, count);
    }
  }

  /** Forget all rows: another kernel is there. */
  clear(): void {
    this._latest++;
    this._wanted = false;
    this._rows = [];
    this._start = this._total = 0;
  }

  private async _load(
    start: number,
    count: number,
    join = false
  ): Promise<void> {
    const ticket = ++this._latest;
    this._wanted = true;
    this._running++;
    this._changed();
    const page = await this._fetch(start, count, this._text);
    this._running--;
    if (ticket === this._latest && page !== null) {
      this._take(page, join);
    }
    this._changed();
  }

  private _take(page: Page<Row>, join: boolean): void {
    const before = join && this.fromEnd ? page.rows : join ? this._rows : [];
    const after = join && this.fromEnd ? this._rows : page.rows;
    this._rows = [...before, ...after];
    this._start = join && !this.fromEnd ? this._start : page.start;
    this._total = page.total;
  }

  private _wanted = false;
  private _running = 0;
  private _latest = 0;
  private _rows: readonly Row[] = [];
  private _start = 0;
  private _total = 0;
  private _text = '';
}

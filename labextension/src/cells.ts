/** CellTurns: which turn each cell of a notebook is. */

import type { Link } from './link.js';
import { MAX_CELLS, readTurns, type TurnRow } from './protocol.js';

export class CellTurns {
  /** The turns by cell id, as they were when the cells were last looked at. */
  get rows(): ReadonlyMap<string, TurnRow> {
    return this._rows;
  }

  clear(): void {
    this._rows = new Map();
    this._ticket++;
  }

  /** Ask for the turns of these cells; returns whether they were learned. A later look counts instead of this one. */
  async look(link: Link, ids: readonly string[]): Promise<boolean> {
    const ticket = ++this._ticket;
    const found = new Map<string, TurnRow>();
    for (let i = 0; i < ids.length; i += MAX_CELLS) {
      const cells = ids.slice(i, i + MAX_CELLS);
      const reply = await link.run('cells', { cells });
      if (reply?.status !== 'ok') {
        return false;
      }
      for (const row of readTurns(reply.result).rows) {
        found.set(row.cell, row);
      }
    }
    if (ticket !== this._ticket) {
      return false;
    }
    this._rows = found;
    return true;
  }

  private _ticket = 0;
  private _rows: ReadonlyMap<string, TurnRow> = new Map();
}

/** CellMarks: a line above each cell that is a turn, with its number, whether it is stale, and its cost. */

import type { Cell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { dollars } from './format.js';
import type { TurnRow } from './protocol.js';
import type { AgentSession } from './session.js';

const ASK_WAIT_MS = 200;

/** Tell whether a cell of this source is one of the agent's: `%%agent` is its first line that is not empty. */
export function isAgentCell(source: string): boolean {
  return /^(?:[^\S\n]*\n)*%%agent(?:\s|$)/.test(source);
}

export class CellMarks implements IDisposable {
  constructor(
    private _panel: NotebookPanel,
    private _session: AgentSession,
    private _trans: TranslationBundle
  ) {
    _session.turnsChanged.connect(this._ask, this);
    _session.changed.connect(this._onChanged, this);
    void _panel.context.ready.then(() => {
      if (!this._disposed) {
        _panel.content.model?.cells.changed.connect(this._ask, this);
        _panel.content.model?.contentChanged.connect(this._onContent, this);
        this._ask();
      }
    });
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._timer);
    clearTimeout(this._looking);
    Signal.clearData(this);
  }

  /** Cells that were edited may have become the agent's, or are not any more. */
  private _onContent(): void {
    this._looking ||= window.setTimeout(() => {
      this._looking = 0;
      if (!this._disposed && this._agentCells().join(' ') !== this._asked) {
        this._ask();
      }
    }, ASK_WAIT_MS);
  }

  private _agentCells(): string[] {
    return this._panel.content.widgets
      .filter(cell => isAgents(cell))
      .map(cell => cell.model.id);
  }

  /** Ask for the turns of the cells soon, once for all that changes until then. */
  private _ask(): void {
    clearTimeout(this._timer);
    this._timer = window.setTimeout(() => {
      if (!this._disposed) {
        const ids = this._agentCells();
        this._asked = ids.join(' ');
        void this._session.lookAtCells(ids);
        this._draw();
      }
    }, ASK_WAIT_MS);
  }

  private _onChanged(): void {
    if (this._session.cells !== this._drawn) {
      this._draw();
    }
  }

  private _draw(): void {
    this._drawn = this._session.cells;
    for (const cell of this._panel.content.widgets) {
      const row = this._row(cell);
      if (!cell.isPlaceholder()) {
        this._mark(cell, row);
      } else if (row !== undefined) {
        void cell.ready.then(() => {
          if (!this._disposed && !cell.isDisposed) {
            this._mark(cell, this._row(cell));
          }
        });
      }
    }
  }

  /** The turn of a cell; none when it is no cell of the agent any more. */
  private _row(cell: Cell): TurnRow | undefined {
    return isAgents(cell) ? this._session.cells.get(cell.model.id) : undefined;
  }

  private _mark(cell: Cell, row: TurnRow | undefined): void {
    const old = cell.node.querySelector(':scope > .nbagent-CellMark');
    if (row === undefined) {
      old?.remove();
      return;
    }
    const trans = this._trans;
    const text = [
      row.current
        ? trans.__('Turn %1', row.number)
        : trans.__('Turn %1 · %2', row.number, row.turn),
      row.stale ? trans.__('stale') : '',
      row.current ? '' : trans.__('other branch'),
      row.compacted ? trans.__('compacted') : '',
      dollars(row.costUsd)
    ]
      .filter(part => part !== '')
      .join(' · ');
    const mark = old ?? document.createElement('div');
    mark.className = `nbagent-CellMark${row.stale ? ' nbagent-mod-stale' : ''}`;
    if (mark.textContent !== text) {
      mark.textContent = text;
    }
    if (old === null) {
      mark.setAttribute('role', 'note');
      cell.node.prepend(mark);
    }
  }

  private _disposed = false;
  private _timer = 0;
  private _looking = 0;
  private _asked = '';
  private _drawn: ReadonlyMap<string, TurnRow> | null = null;
}

function isAgents(cell: Cell): boolean {
  return (
    cell.model.type === 'code' &&
    isAgentCell(cell.model.sharedModel.getSource())
  );
}

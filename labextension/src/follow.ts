/** Follower: one attachment for each open notebook, and which of them is the current one. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';

import { Attachment } from './attach.js';
import { CellMarks } from './marks.js';
import type { AgentSession } from './session.js';

interface Followed {
  attachment: Attachment;
  panels: Set<NotebookPanel>;
}

export class Follower {
  constructor(
    private _tracker: INotebookTracker,
    private _client: string,
    private _trans: TranslationBundle
  ) {
    _tracker.forEach(panel => this._add(panel));
    _tracker.widgetAdded.connect((_, panel) => this._add(panel));
    _tracker.currentChanged.connect(() => this._changed.emit());
  }

  /** Emitted when another notebook is the current one, or it has another name. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted when a question waits in some notebook; `tool` is empty when it waits no more. */
  get asked(): ISignal<this, { panel: NotebookPanel; tool: string }> {
    return this._asked;
  }

  /** The current notebook; null when none is open. */
  get panel(): NotebookPanel | null {
    return this._tracker.currentWidget;
  }

  /** The session of the current notebook; null when none is open. */
  get session(): AgentSession | null {
    const context = this.panel?.sessionContext;
    const followed = context && this._followed.get(context);
    return followed ? followed.attachment.session : null;
  }

  private _add(panel: NotebookPanel): void {
    const context = panel.sessionContext;
    let followed = this._followed.get(context);
    if (followed === undefined) {
      const attachment = new Attachment({
        context,
        client: this._client,
        trans: this._trans
      });
      followed = { attachment, panels: new Set() };
      this._followed.set(context, followed);
      attachment.session.asked.connect((_, tool) =>
        this._asked.emit({ panel, tool })
      );
    }
    followed.panels.add(panel);
    const marks = new CellMarks(
      panel,
      followed.attachment.session,
      this._trans
    );
    const rename = (): void => this._changed.emit();
    panel.context.pathChanged.connect(rename);
    panel.disposed.connect(() => {
      panel.context.pathChanged.disconnect(rename);
      marks.dispose();
      this._remove(context, panel);
    });
    this._changed.emit();
  }

  private _remove(context: ISessionContext, panel: NotebookPanel): void {
    const followed = this._followed.get(context);
    followed?.panels.delete(panel);
    if (followed?.panels.size === 0) {
      this._followed.delete(context);
      followed.attachment.dispose();
    }
    this._changed.emit();
  }

  private _changed = new Signal<this, void>(this);
  private _asked = new Signal<this, { panel: NotebookPanel; tool: string }>(
    this
  );
  private _followed = new Map<ISessionContext, Followed>();
}

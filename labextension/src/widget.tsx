/** AgentPanel: the widget in the side bar; draws only while it can be seen. */

import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon, ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { PathExt } from '@jupyterlab/coreutils';
import * as React from 'react';

import { SEARCH_ID } from './components/Memory.js';
import { Panel, type OpenParts, type PartName } from './components/Panel.js';
import type { PanelHost } from './components/shared.js';
import type { Follower } from './follow.js';
import { AgentSession } from './session.js';

export const icon = new LabIcon({
  name: 'nbagent:panel',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<path d="M4 4h16v11H9l-5 5V4zm2 2v9.2L8.2 13H18V6H6z"/><path d="M8 8h8v1.5H8zm0 2.5h5V12H8z"/></g></svg>'
});

const AT_FIRST: OpenParts = {
  context: true,
  compaction: true,
  turns: true,
  skills: false,
  memory: true,
  agents: false
};

export class AgentPanel extends ReactWidget {
  constructor(
    private _follower: Follower,
    private _host: PanelHost,
    private _trans: TranslationBundle
  ) {
    super();
    this.id = 'nbagent-panel';
    this.addClass('nbagent-Panel');
    this.title.icon = icon;
    this.title.caption = _trans.__('Agent');
    this.node.setAttribute('role', 'complementary');
    this.node.setAttribute('aria-label', _trans.__('Agent'));
    _follower.changed.connect(this._onFollowed, this);
    this._onFollowed();
  }

  /** Unfold a part, and put the focus into it. */
  showPart(part: PartName): void {
    this._open = { ...this._open, [part]: true };
    this.update();
    void this.renderPromise?.then(() => {
      const target =
        part === 'memory'
          ? document.getElementById(SEARCH_ID)
          : document.getElementById(`nbagent-${part}-heading`);
      target?.focus();
      target?.scrollIntoView({ block: 'nearest' });
    });
  }

  /** Put the focus into the panel, whose first control is a Tab away. */
  takeFocus(): void {
    this.update();
    void this.renderPromise?.then(() => {
      this.node.querySelector<HTMLElement>('.nbagent-Scroll')?.focus();
    });
  }

  /** Scroll to the top. */
  showTop(): void {
    this.node.querySelector('.nbagent-Scroll')?.scrollTo(0, 0);
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected override render(): React.ReactElement | null {
    if (!this.isVisible) {
      return null;
    }
    const path = this._follower.panel?.context.path ?? null;
    return (
      <Panel
        key={path}
        session={this._session ?? NOBODY}
        trans={this._trans}
        host={this._host}
        notebook={path === null ? null : PathExt.basename(path)}
        open={this._open}
        onToggle={(part, open) => {
          this._open = { ...this._open, [part]: open };
          this.update();
        }}
      />
    );
  }

  private _onFollowed(): void {
    this._session?.changed.disconnect(this._onChanged, this);
    this._session = this._follower.session;
    this._session?.changed.connect(this._onChanged, this);
    this.update();
  }

  private _onChanged(): void {
    const works =
      this._session?.state.agents.rows.some(row => row.status === 'running') ===
      true;
    if (works && !this._works) {
      this._open = { ...this._open, agents: true }; // one began: it can be told something now
    }
    this._works = works;
    if (this.isVisible) {
      this.update();
    }
  }

  private _session: AgentSession | null = null;
  private _open: OpenParts = AT_FIRST;
  private _works = false;
}

const NOBODY = new AgentSession({ interrupt: () => undefined, stopWaitMs: 0 });

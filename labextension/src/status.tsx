/** GaugeStatus: the context of the current notebook in the status bar; a click opens the panel. */

import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { dollars, percent, tokens } from './format.js';
import type { Follower } from './follow.js';
import type { AgentSession } from './session.js';

export class GaugeStatus extends ReactWidget {
  constructor(
    private _follower: Follower,
    private _trans: TranslationBundle,
    private _open: () => void
  ) {
    super();
    this.addClass('nbagent-Status');
    _follower.changed.connect(this._onFollowed, this);
    this._onFollowed();
  }

  /** Whether there is something to tell. */
  get active(): boolean {
    return this._session?.phase === 'ready';
  }

  protected override render(): React.ReactElement | null {
    const session = this._session;
    if (session?.phase !== 'ready') {
      return null;
    }
    const trans = this._trans;
    const { gauge, turn, approval } = session.state;
    const share = percent(gauge.usedTokens, gauge.windowTokens);
    const doing =
      approval.approval !== ''
        ? trans.__('asks you')
        : turn.status === 'idle'
          ? ''
          : trans.__('runs');
    const said = trans.__(
      'Agent: context %1 % used (%2 tokens), session cost %3',
      share,
      tokens(gauge.usedTokens),
      dollars(gauge.costUsd)
    );
    return (
      <button
        type="button"
        className="nbagent-Status-button"
        title={said}
        aria-label={doing === '' ? said : `${said}, ${doing}`}
        onClick={this._open}
      >
        <span className="nbagent-Status-bar" aria-hidden="true">
          <span style={{ width: `${Math.min(100, share)}%` }} />
        </span>
        {`${share} % · ${dollars(gauge.costUsd)}`}
        {doing !== '' ? ` · ${doing}` : ''}
      </button>
    );
  }

  private _onFollowed(): void {
    this._session?.changed.disconnect(this._onChanged, this);
    this._session = this._follower.session;
    this._session?.changed.connect(this._onChanged, this);
    this._onChanged();
  }

  private _onChanged(): void {
    this.update();
  }

  private _session: AgentSession | null = null;
}

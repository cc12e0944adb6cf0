/** Sub-agents: what they do, a word to each, and stop. */

import * as React from 'react';

import { dollars } from '../format.js';
import { Badge, Say, type PartProps } from './shared.js';

export function Agents({ session, trans }: PartProps): JSX.Element {
  const { rows, total } = session.state.agents;
  if (total === 0) {
    return <p className="nbagent-Hint">{trans.__('No sub-agent has run.')}</p>;
  }
  return (
    <>
      <ul className="nbagent-List" aria-label={trans.__('Sub-agents')}>
        {rows.map(row => (
          <li key={row.agent} className="nbagent-Item">
            <div className="nbagent-Row">
              <span>
                <strong>{row.name || row.agent}</strong>{' '}
                <Badge kind={badge(row.status)} text={row.status} />
                {row.activity !== '' ? ` ${row.activity}` : ''}
                {` · ${dollars(row.costUsd)}`}
              </span>
              {row.status === 'running' ? (
                <button
                  type="button"
                  className="nbagent-Button nbagent-mod-warn"
                  aria-label={trans.__('Stop %1', row.name || row.agent)}
                  onClick={() => void session.stopAgent(row.agent)}
                >
                  {trans.__('Stop')}
                </button>
              ) : null}
            </div>
            {row.status === 'running' ? (
              <Say
                label={trans.__('Tell %1 something', row.name || row.agent)}
                button={trans.__('Send')}
                onSend={text => session.sendTo(row.agent, text)}
              />
            ) : null}
          </li>
        ))}
      </ul>
      {total > rows.length ? (
        <p className="nbagent-Hint">
          {trans.__('%1 more; `%agent agents` lists all.', total - rows.length)}
        </p>
      ) : null}
    </>
  );
}

function badge(status: string): string {
  return ['running', 'done', 'failed', 'stopped'].includes(status)
    ? status
    : 'other';
}

/** Sub-agents: what they do, a word to each, and stop. */

import * as React from 'react';

import { dollars, tokens } from '../format.js';
import type { AgentRow } from '../protocol.js';
import { Badge, Say, type PartProps } from './shared.js';

export function Agents(props: PartProps): JSX.Element {
  const { session, trans } = props;
  const { rows, total } = session.state.agents;
  if (total === 0) {
    return (
      <p className="nbagent-Hint">
        {trans.__(
          'No sub-agent has run. A skill with "context: fork" works as one.'
        )}
      </p>
    );
  }
  return (
    <>
      <ul className="nbagent-List" aria-label={trans.__('Sub-agents')}>
        {rows.map(row => (
          <Agent key={row.agent} row={row} {...props} />
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

function Agent({
  row,
  session,
  trans
}: PartProps & { row: AgentRow }): JSX.Element {
  const name = row.name || row.agent;
  const facts = [
    trans._n('%1 call', '%1 calls', row.calls),
    row.tokens > 0 ? trans.__('%1 tokens', tokens(row.tokens)) : '',
    row.costUsd > 0 ? dollars(row.costUsd) : ''
  ];
  return (
    <li className="nbagent-Item">
      <div className="nbagent-Row nbagent-mod-head">
        <span>
          <strong className="nbagent-Name">{name}</strong>{' '}
          <Badge
            kind={badge(row.status)}
            text={statusWord(row.status, trans)}
          />
        </span>
        {row.status === 'running' ? (
          <button
            type="button"
            className="nbagent-Button nbagent-mod-warn"
            aria-label={trans.__('Stop %1', name)}
            onClick={() => void session.stopAgent(row.agent)}
          >
            {trans.__('Stop')}
          </button>
        ) : null}
      </div>
      {row.activity !== '' ? (
        <p className="nbagent-Description">{row.activity}</p>
      ) : null}
      <p className="nbagent-Hint">
        {facts.filter(fact => fact !== '').join(' · ')}
      </p>
      {row.status === 'running' ? (
        <Say
          session={session}
          label={trans.__('Tell %1 something', name)}
          button={trans.__('Send')}
          onSend={text => session.sendTo(row.agent, text)}
        />
      ) : null}
    </li>
  );
}

const STATUSES = ['running', 'done', 'failed', 'stopped'];

function badge(status: string): string {
  return STATUSES.includes(status) ? status : 'other';
}

function statusWord(status: string, trans: PartProps['trans']): string {
  switch (status) {
    case 'running':
      return trans.__('running');
    case 'done':
      return trans.__('done');
    case 'failed':
      return trans.__('failed');
    case 'stopped':
      return trans.__('stopped');
    default:
      return status;
  }
}

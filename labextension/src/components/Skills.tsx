/** The skill catalog: what the model may use, why or why not, what it costs; a switch each. */

import * as React from 'react';

import { tokens } from '../format.js';
import type { SkillRow } from '../protocol.js';
import { Badge, listClass, type PartProps } from './shared.js';

export function Skills(props: PartProps): JSX.Element {
  const { session, trans } = props;
  const { catalog } = session;
  const { total, visible, promptTokens, problems } = session.state.catalog;
  React.useEffect(() => void catalog.want());
  return (
    <>
      <p className="nbagent-Hint">
        {trans.__(
          'The model sees %1 of %2; they cost %3 tokens.',
          visible,
          total,
          tokens(promptTokens)
        )}
        {problems > 0
          ? ` ${trans._n('%1 problem: run %skills lint.', '%1 problems: run %skills lint.', problems)}`
          : ''}
      </p>
      <input
        type="search"
        className="nbagent-Input"
        aria-label={trans.__('Search skills')}
        placeholder={trans.__('Search skills')}
        defaultValue={catalog.text}
        onChange={event => void catalog.search(event.target.value)}
      />
      <ul
        className={listClass(catalog.rows.length)}
        aria-label={trans.__('Skills')}
      >
        {catalog.rows.map(row => (
          <Skill key={`${row.source}/${row.name}`} row={row} {...props} />
        ))}
      </ul>
      {catalog.rows.length === 0 && !catalog.loading ? (
        <p className="nbagent-Hint">{trans.__('No skill.')}</p>
      ) : null}
      {catalog.more > 0 ? (
        <button
          type="button"
          className="nbagent-Button"
          disabled={catalog.loading}
          onClick={() => void catalog.wantMore()}
        >
          {trans.__('Show more (%1 left)', catalog.more)}
        </button>
      ) : null}
    </>
  );
}

/** Return in words where a skill comes from. */
function sourceWords(source: string, trans: PartProps['trans']): string {
  switch (source) {
    case 'bundled':
      return trans.__('comes with nbagent');
    case 'managed':
      return trans.__('your own');
    case 'claude-personal':
      return trans.__("your own, Claude's");
    case 'agents-personal':
      return trans.__('your own, of all agents');
    case 'claude-project':
      return trans.__("this project's, Claude's");
    case 'agents-project':
      return trans.__("this project's, of all agents");
    case 'workspace':
      return trans.__("this project's");
    case 'extra':
      return trans.__('from a folder in the settings');
    default:
      return source;
  }
}

function Skill({
  row,
  session,
  trans
}: PartProps & { row: SkillRow }): JSX.Element {
  return (
    <li className="nbagent-Item">
      <div className="nbagent-Row nbagent-mod-head">
        <strong className="nbagent-Name">{row.name}</strong>
        <button
          type="button"
          role="switch"
          aria-checked={row.on}
          aria-label={trans.__('Skill %1', row.name)}
          className="nbagent-Switch"
          onClick={() => void session.setSkill(row.name, !row.on)}
        >
          {row.on ? trans.__('On') : trans.__('Off')}
        </button>
      </div>
      <p className="nbagent-Description">{row.description}</p>
      <p className="nbagent-Hint">
        {row.visible ? null : (
          <Badge kind="hidden" text={trans.__('hidden from the model')} />
        )}{' '}
        {[
          sourceWords(row.source, trans),
          row.on ? row.reason : trans.__('switched off'),
          trans.__('%1 tokens', tokens(row.tokens)),
          row.uses > 0 ? trans._n('used once', 'used %1 times', row.uses) : ''
        ]
          .filter(part => part !== '')
          .join(' · ')}
      </p>
    </li>
  );
}

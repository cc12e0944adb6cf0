/** The turn tree: which turns there are, which are stale, and the way back to each. */

import * as React from 'react';

import { dollars } from '../format.js';
import type { TurnRow } from '../protocol.js';
import { Badge, listClass, type PartProps } from './shared.js';

const MOST_INDENTS = 6;

export function Turns(props: PartProps): JSX.Element {
  const { session, trans } = props;
  const { tree } = session;
  const { total, current, stale } = session.state.tree;
  React.useEffect(() => void tree.want());
  const depths = branchDepths(tree.rows);
  const list = React.useRef<HTMLOListElement>(null);
  const leaf = tree.rows.find(row => row.leaf)?.turn;
  React.useEffect(() => {
    const rows = list.current;
    const here = rows?.querySelector<HTMLElement>('[aria-current]');
    if (rows && here) {
      rows.scrollTop = here.offsetTop + here.offsetHeight - rows.clientHeight;
    }
  }, [leaf]);
  return (
    <>
      <p className="nbagent-Hint">
        {total === 0
          ? trans.__(
              'No turn yet. A cell that begins with %1 is a turn: write below that line what the agent should do.',
              '%%agent' // not in the text: the translator makes one of two
            )
          : current === total
            ? trans._n('%1 turn', '%1 turns', total)
            : trans.__('%1 turns, %2 on this branch', total, current)}
        {stale > 0 ? ` · ${trans.__('%1 stale', stale)}` : ''}
      </p>
      {tree.more > 0 ? (
        <button
          type="button"
          className="nbagent-Button"
          disabled={tree.loading}
          onClick={() => void tree.wantMore()}
        >
          {trans.__('Show earlier turns (%1)', tree.more)}
        </button>
      ) : null}
      <ol
        ref={list}
        className={listClass(tree.rows.length)}
        aria-label={trans.__('Turns')}
      >
        {tree.rows.map(row => (
          <Turn
            key={row.turn}
            row={row}
            depth={depths.get(row.turn) ?? 0}
            {...props}
          />
        ))}
      </ol>
    </>
  );
}

function Turn({
  row,
  depth,
  session,
  trans,
  host
}: PartProps & { row: TurnRow; depth: number }): JSX.Element {
  const name = trans.__('Turn %1', row.number);
  const blocked = row.leaf || session.isBusy('revert');
  return (
    <li
      className={`nbagent-Item nbagent-Turn${row.current ? '' : ' nbagent-mod-aside'}`}
      style={{ marginLeft: `${Math.min(depth, MOST_INDENTS)}em` }}
      aria-current={row.leaf ? 'step' : undefined}
      data-turn={row.turn}
    >
      <div className="nbagent-Row nbagent-mod-head">
        <span>
          <strong>{name}</strong>{' '}
          <code
            className="nbagent-Id"
            title={trans.__('Its name: %agent revert %1', row.turn)}
          >
            {row.turn}
          </code>{' '}
          {row.leaf ? <Badge kind="current" text={trans.__('here')} /> : null}{' '}
          {row.stale ? <Badge kind="stale" text={trans.__('stale')} /> : null}{' '}
          {row.forked ? (
            <Badge kind="forked" text={trans.__('forked')} />
          ) : null}{' '}
          {row.current ? null : (
            <Badge kind="aside" text={trans.__('other branch')} />
          )}{' '}
          {row.compacted ? (
            <Badge
              kind="compacted"
              text={trans.__('compacted')}
              title={trans.__(
                'A hand-off note stands in the place of this turn'
              )}
            />
          ) : null}
        </span>
        <button
          type="button"
          className="nbagent-Button"
          aria-label={trans.__(
            'Go back to turn %1 · %2: %3',
            row.number,
            row.turn,
            row.prompt
          )}
          aria-disabled={blocked} // not `disabled`: the keyboard's focus stays here
          onClick={() => (blocked ? undefined : void session.revert(row.turn))}
        >
          {trans.__('Revert')}
        </button>
      </div>
      <button
        type="button"
        className="nbagent-Link nbagent-Prompt"
        disabled={row.cell === ''}
        title={trans.__('Show the cell')}
        onClick={() => {
          if (!host.showCell(row.cell)) {
            session.say(
              trans.__(
                'The cell of turn %1 is not in this notebook any more.',
                row.number
              )
            );
          }
        }}
      >
        {row.prompt}
      </button>
      <p className="nbagent-Hint">
        {[
          row.outcome,
          trans._n('%1 step', '%1 steps', row.steps),
          dollars(row.costUsd)
        ]
          .filter(part => part !== '')
          .join(' · ')}
      </p>
    </li>
  );
}

/** Return how many forks lie between a turn and its root, as far as the rows tell. */
export function branchDepths(
  rows: readonly TurnRow[]
): ReadonlyMap<string, number> {
  const depths = new Map<string, number>();
  for (const row of rows) {
    const above = depths.get(row.parent) ?? 0;
    depths.set(row.turn, above + (row.forked && !row.current ? 1 : 0));
  }
  return depths;
}

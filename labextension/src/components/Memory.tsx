/** Search in memory, with results that open the file at the line. */

import * as React from 'react';

import type { HitRow } from '../protocol.js';
import { useTyped, type PartProps } from './shared.js';

export const SEARCH_ID = 'nbagent-memory-search';

export function Memory(props: PartProps): JSX.Element {
  const { session, trans, host } = props;
  const { found, opened } = session.memory;
  const [query, setQuery] = useTyped(session, 'memory', found?.query ?? '');
  const busy = session.isBusy('search');
  const note = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    note.current?.scrollIntoView({ block: 'nearest' });
  }, [opened]);
  return (
    <>
      <form
        role="search"
        className="nbagent-Row"
        aria-label={trans.__('Memory')}
        onSubmit={event => {
          event.preventDefault();
          void session.memory.search(query);
        }}
      >
        <input
          id={SEARCH_ID}
          type="search"
          className="nbagent-Input"
          aria-label={trans.__('Search memory')}
          placeholder={trans.__('Search memory')}
          value={query}
          onChange={event => setQuery(event.target.value)}
        />
        <button type="submit" className="nbagent-Button" disabled={busy}>
          {busy ? trans.__('Searching …') : trans.__('Search')}
        </button>
      </form>
      {found === null && opened === null ? (
        <p className="nbagent-Hint">
          {trans.__(
            'Notes outlast a conversation: a cell %memory add TEXT writes one, the agent writes some too.'
          )}
        </p>
      ) : null}
      {found !== null ? (
        <>
          <p className="nbagent-Hint" role="status">
            {trans._n('%1 result', '%1 results', found.rows.length)}
            {found.note !== '' ? ` · ${found.note}` : ''}
          </p>
          <ol className="nbagent-List" aria-label={trans.__('Memory results')}>
            {found.rows.map(hit => (
              <li key={`${hit.path}:${hit.startLine}`} className="nbagent-Item">
                <button
                  type="button"
                  className="nbagent-Link"
                  title={hit.why}
                  onClick={() => host.openHit(hit)}
                >
                  {place(hit)}
                </button>
                <p className="nbagent-Snippet">{hit.snippet}</p>
                <p className="nbagent-Hint">
                  {[hit.date, trans.__('score %1', hit.score.toFixed(2))]
                    .filter(part => part !== '')
                    .join(' · ')}
                </p>
              </li>
            ))}
          </ol>
        </>
      ) : null}
      {opened !== null ? (
        <div
          ref={note}
          className="nbagent-Opened"
          role="group"
          aria-label={trans.__('Note %1', opened.path)}
        >
          <div className="nbagent-Row nbagent-mod-head">
            <strong className="nbagent-Name">{opened.path}</strong>
            <button
              type="button"
              className="nbagent-Button"
              onClick={() => session.memory.closeNote()}
            >
              {trans.__('Close')}
            </button>
          </div>
          <pre className="nbagent-Text" tabIndex={0}>
            {opened.text}
          </pre>
        </div>
      ) : null}
    </>
  );
}

function place(hit: HitRow): string {
  const lines =
    hit.endLine > hit.startLine
      ? `${hit.startLine}–${hit.endLine}`
      : `${hit.startLine}`;
  return `${hit.path}:${lines}`;
}

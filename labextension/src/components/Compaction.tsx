/** Compaction: the hand-off note to edit, what would be lost, then apply; and undo. */

import * as React from 'react';

import { tokens } from '../format.js';
import type { NoteDraft } from '../draft.js';
import type { CompactionResult } from '../protocol.js';
import { mayTakeFocus, type PartProps } from './shared.js';

export function Compaction(props: PartProps): JSX.Element {
  const { session, trans } = props;
  const { compaction } = session.state;
  const { preview } = session.draft;
  const writing = session.isBusy('preview');
  const waits = session.state.queue.rows.some(
    row => row.name === 'preview_compaction'
  );
  const refused = session.refusal('preview_compaction');
  const blocked = writing || preview !== null || refused !== '';
  const button = React.useRef<HTMLButtonElement>(null);
  const wasOpen = React.useRef(false);
  React.useEffect(() => {
    if (wasOpen.current && preview === null && mayTakeFocus()) {
      button.current?.focus(); // where the keyboard was before the note was shown
    }
    wasOpen.current = preview !== null;
  }, [preview]);
  return (
    <>
      <p className="nbagent-Hint">
        {compaction.entry === ''
          ? trans.__('No compaction is in force.')
          : trans.__(
              'In force: %1 → %2 tokens',
              tokens(compaction.beforeTokens),
              tokens(compaction.afterTokens)
            )}
        {compaction.entry !== ''
          ? compaction.reason !== ''
            ? ` (${compaction.reason}).`
            : '.'
          : ''}
        {compaction.lost
          ? ` ${trans._n('%1 detail was lost.', '%1 details were lost.', compaction.lost)}`
          : ''}
      </p>
      <div className="nbagent-Row">
        <button
          ref={button}
          type="button"
          className="nbagent-Button"
          aria-disabled={blocked} // not `disabled`: it can be reached, and says why
          aria-describedby={
            refused !== '' ? 'nbagent-compact-refused' : undefined
          }
          title={
            refused !== ''
              ? refused
              : trans.__('Have a hand-off note written, and look at it first')
          }
          onClick={() =>
            blocked ? undefined : void session.previewCompaction()
          }
        >
          {!writing
            ? trans.__('Compact …')
            : waits
              ? trans.__('Waits for the turn …')
              : trans.__('Writing the hand-off note …')}
        </button>
        <button
          type="button"
          className="nbagent-Button"
          disabled={compaction.entry === '' || session.isBusy('undo')}
          title={
            compaction.entry === ''
              ? trans.__('There is no compaction to take back')
              : trans.__('Take the compaction back; later turns stay')
          }
          onClick={() => void session.undoCompaction()}
        >
          {trans.__('Undo')}
        </button>
      </div>
      {refused !== '' ? (
        <p id="nbagent-compact-refused" className="nbagent-Hint">
          {refused}
        </p>
      ) : null}
      {preview !== null ? <Preview {...props} preview={preview} /> : null}
    </>
  );
}

function Preview({
  session,
  trans,
  preview
}: PartProps & { preview: CompactionResult }): JSX.Element {
  const { outdated } = session;
  const writing = session.isBusy('preview');
  return (
    <div
      className="nbagent-Preview"
      role="group"
      aria-label={trans.__('Compaction, not applied yet')}
      onKeyDown={event => {
        // An input method takes Escape for itself while it composes.
        if (event.key === 'Escape' && !event.nativeEvent.isComposing) {
          session.draft.close();
        }
      }}
    >
      <p>
        <strong>
          {trans.__(
            '%1 → %2 tokens',
            tokens(preview.beforeTokens),
            tokens(preview.afterTokens)
          )}
        </strong>{' '}
        {trans.__('with the note as the model wrote it')}
      </p>
      {outdated !== '' ? (
        <div className="nbagent-Outdated">
          <p className="nbagent-mod-error" role="alert">
            {outdated === 'moved'
              ? trans.__(
                  'Out of date: the conversation has moved since. Have the note written again.'
                )
              : trans.__('A turn runs: this cannot be applied now.')}
          </p>
          {outdated === 'moved' ? (
            <button
              type="button"
              className="nbagent-Button"
              title={trans.__(
                'A new note is written; what you edited is kept beside it'
              )}
              disabled={writing}
              onClick={() => void session.previewCompaction()}
            >
              {writing
                ? trans.__('Writing the hand-off note …')
                : trans.__('Write again')}
            </button>
          ) : null}
        </div>
      ) : null}
      <label className="nbagent-Label">
        {trans.__('Hand-off note, to be edited')}
        <Note draft={session.draft} />
      </label>
      {session.draft.earlierNote !== '' ? (
        <details className="nbagent-Earlier" open>
          <summary>{trans.__('The other note, as you edited it')}</summary>
          <pre className="nbagent-Text" tabIndex={0}>
            {session.draft.earlierNote}
          </pre>
          <button
            type="button"
            className="nbagent-Button"
            onClick={() => session.draft.useEarlier()}
          >
            {trans.__('Swap the two notes')}
          </button>
        </details>
      ) : null}
      <p>
        {trans.__(
          'Loss report, with the note as the model wrote it: %1 kept word for word, %2 can be found again, %3 lost.',
          preview.verbatim,
          preview.reachable,
          preview.lost
        )}
      </p>
      {session.draft.note !== preview.note ? (
        <p className="nbagent-Hint">
          {trans.__(
            'The note was edited: sizes and losses are not counted again.'
          )}
        </p>
      ) : null}
      {preview.rows.length > 0 ? (
        <ul className="nbagent-Lost" aria-label={trans.__('Lost')}>
          {preview.rows.map((row, index) => (
            <li key={index}>
              {row.kind}: <code>{row.text}</code>
            </li>
          ))}
        </ul>
      ) : null}
      <div className="nbagent-Row">
        <button
          type="button"
          className="nbagent-Button nbagent-mod-accept"
          disabled={writing || outdated !== '' || session.isBusy('compact')}
          onClick={() => void session.compact()}
        >
          {trans.__('Apply')}
        </button>
        <button
          type="button"
          className="nbagent-Button"
          onClick={() => session.draft.close()}
        >
          {trans.__('Cancel')}
        </button>
      </div>
    </div>
  );
}

/** The field of the note. React leaves its text alone: to set it anew at each key would take seconds in a long note. */
function Note({ draft }: { draft: NoteDraft }): JSX.Element {
  const field = React.useRef<HTMLTextAreaElement>(null);
  const [first] = React.useState(draft.note);
  const shown = React.useRef(first);
  React.useEffect(() => {
    if (document.activeElement?.closest('.nbagent-Panel')) {
      field.current?.focus(); // not away from a cell that somebody writes in meanwhile
    }
  }, []);
  React.useEffect(() => {
    if (field.current !== null && shown.current !== draft.note) {
      shown.current = field.current.value = draft.note; // another one took its place
    }
  });
  return (
    <textarea
      ref={field}
      className="nbagent-Note"
      rows={12}
      defaultValue={first}
      onChange={event => {
        shown.current = event.target.value;
        draft.edit(event.target.value);
      }}
    />
  );
}

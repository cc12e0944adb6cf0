/** The turn that runs, the question that waits for an answer, and the commands that wait for the turn to end. */

import * as React from 'react';

import { tokens } from '../format.js';
import { commandWords, Say, type PartProps } from './shared.js';

export function RunningTurn({ session, trans }: PartProps): JSX.Element | null {
  const { turn, queue, approval } = session.state;
  const activity =
    approval.approval !== ''
      ? trans.__('waiting for your answer')
      : turn.activity;
  if (turn.status === 'idle' && queue.total === 0) {
    return null;
  }
  return (
    <div className="nbagent-Running">
      {turn.status !== 'idle' ? (
        <>
          <div className="nbagent-Row nbagent-mod-head">
            <span>
              <strong>{trans.__('Turn %1', turn.number)}</strong>{' '}
              {turn.step > 0 ? trans.__('step %1', turn.step) : ''}
              {activity !== '' ? ` · ${activity}` : ''}
            </span>
            <button
              type="button"
              className="nbagent-Button nbagent-mod-warn"
              disabled={turn.status === 'stopping'}
              onClick={() => void session.stop()}
            >
              {turn.status === 'stopping'
                ? trans.__('Stopping …')
                : trans.__('Stop')}
            </button>
          </div>
          {turn.delivers ? null : (
            <p className="nbagent-Hint">
              {trans.__(
                'This kernel listens between cells only: what you send is done when the cell ends. Stop works now.'
              )}
            </p>
          )}
          <Say
            session={session}
            label={trans.__('Tell the agent something')}
            button={trans.__('Tell')}
            onSend={text => session.steer(text)}
          />
        </>
      ) : null}
      {queue.total > 0 ? (
        <p className="nbagent-Hint">
          {trans.__('Waiting for the turn to end:')}{' '}
          {queue.rows.map(row => commandWords(row.name, trans)).join(', ')}
          {queue.total > queue.rows.length
            ? ` ${trans.__('and %1 more', queue.total - queue.rows.length)}`
            : ''}
        </p>
      ) : null}
    </div>
  );
}

export function Question({ session, trans }: PartProps): JSX.Element | null {
  const { approval } = session.state;
  if (approval.approval === '') {
    return null;
  }
  const whole = session.question !== '';
  return (
    <div
      className="nbagent-Question"
      role="group"
      aria-label={trans.__('The agent asks: %1', approval.tool)}
    >
      <div role="alert">
        <strong>{trans.__('The agent asks')}</strong>
        <pre className="nbagent-Text" tabIndex={0}>
          {whole ? session.question : approval.text}
        </pre>
      </div>
      {/* It keeps its place: else a second click would meet the answer that moved there. */}
      {approval.moreChars > 0 ? (
        <button
          type="button"
          className="nbagent-Button"
          aria-disabled={whole}
          onClick={() => {
            if (!whole) {
              void session.readQuestion(approval.approval);
            }
          }}
        >
          {whole
            ? trans.__('All of it is shown')
            : trans.__('Show %1 more characters', tokens(approval.moreChars))}
        </button>
      ) : null}
      <div className="nbagent-Row">
        {approval.choices.map(choice => (
          <button
            key={choice.answer}
            type="button"
            className="nbagent-Button"
            onClick={() =>
              void session.answer(approval.approval, choice.answer)
            }
          >
            {choice.label}
          </button>
        ))}
      </div>
    </div>
  );
}

/** The whole panel of one notebook. */

import * as React from 'react';

import type { KeyedLine } from '../lines.js';
import { Agents } from './Agents.js';
import { Compaction } from './Compaction.js';
import { Gauge, Settings } from './Gauge.js';
import { Memory } from './Memory.js';
import { commandWords, Section, type PartProps } from './shared.js';
import { Skills } from './Skills.js';
import { Question, RunningTurn } from './Turn.js';
import { Turns } from './Turns.js';

export type PartName =
  'context' | 'compaction' | 'turns' | 'skills' | 'memory' | 'agents';

/** Which parts are unfolded; kept by the panel over notebooks. */
export type OpenParts = Readonly<Record<PartName, boolean>>;

export interface PanelProps extends PartProps {
  /** The notebook's name; null when none is open. */
  notebook: string | null;
  open: OpenParts;
  onToggle: (part: PartName, open: boolean) => void;
}

export function Panel(props: PanelProps): JSX.Element {
  const { trans, notebook } = props;
  if (notebook === null) {
    return (
      <p className="nbagent-Hint" role="status">
        {trans.__(
          'No notebook is open. The panel shows the context, the turns and the skills of the agent in the notebook in front.'
        )}
      </p>
    );
  }
  return (
    <div
      className="nbagent-Region"
      role="region"
      aria-label={trans.__('Agent of %1', notebook)}
    >
      <div className="nbagent-Scroll" tabIndex={-1}>
        <h2 className="nbagent-Title">{notebook}</h2>
        <Body {...props} />
      </div>
      <Lines {...props} />
    </div>
  );
}

/** What each press came to: a line for each, the newest last. */
function Lines({ session, trans }: PanelProps): JSX.Element {
  return (
    <div
      className="nbagent-Lines"
      role="status"
      aria-label={trans.__('Messages')}
    >
      {session.lines.map(line => (
        <div
          key={line.key}
          className={`nbagent-Line${line.error ? ' nbagent-mod-error' : ''}`}
          role={line.error ? 'alert' : undefined}
        >
          <p>
            {(line.waits || line.error) && line.name !== '' ? (
              <strong>{`${commandWords(line.name, trans)}: `}</strong>
            ) : null}
            {withoutName(line)}
          </p>
          <button
            type="button"
            className="nbagent-Close"
            title={trans.__('Close the message')}
            aria-label={trans.__('Close the message')}
            onClick={() => session.closeLine(line.key)}
          >
            <span aria-hidden="true">×</span>
          </button>
        </div>
      ))}
    </div>
  );
}

/** Return the text of a line; the kernel begins some with the command, which is told in other words before it. */
function withoutName({ name, text }: KeyedLine): string {
  return name !== '' && text.startsWith(`${name}: `)
    ? text.slice(name.length + 2)
    : text;
}

function Body(props: PanelProps): JSX.Element {
  const { session, trans, open, onToggle } = props;
  switch (session.phase) {
    case 'absent':
      return (
        <>
          <p className="nbagent-Hint" role="status">
            {session.brokenOff > 0
              ? trans.__(
                  'The kernel ended while turn %1 ran: it was broken off, and the conversation is kept. nbagent is not loaded in this notebook. Run a cell with %load_ext nbagent, then %agent resume.',
                  session.brokenOff
                )
              : trans.__(
                  'nbagent is not loaded in this notebook. Run a cell with %load_ext nbagent.'
                )}
          </p>
          {session.brokenOff > 0 ? null : (
            <>
              <pre className="nbagent-Code">%load_ext nbagent</pre>
              <p className="nbagent-Hint">
                {trans.__('Then a cell like this one asks the agent:')}
              </p>
              <pre className="nbagent-Code">
                {`%%agent\n${trans.__('Which columns of df hold no value?')}`}
              </pre>
            </>
          )}
        </>
      );
    case 'elsewhere':
      return (
        <p className="nbagent-Hint" role="status">
          {trans.__(
            'This notebook shares its kernel with another notebook or a console, and only one of them can talk with the panel: the one that was opened first. Close the other and load the page again, or choose another kernel.'
          )}
        </p>
      );
    case 'greeting':
      return (
        <>
          <p className="nbagent-Hint" role="status">
            {trans.__(
              'Waiting for the kernel. While a cell runs it may answer only when the cell ends; the cell can be stopped.'
            )}
          </p>
          <button
            type="button"
            className="nbagent-Button nbagent-mod-warn nbagent-mod-late"
            onClick={() => void session.stop()}
          >
            {trans.__('Stop the running cell')}
          </button>
        </>
      );
    case 'mismatch':
      return (
        <p className="nbagent-Notice nbagent-mod-error" role="alert">
          {session.mismatch}
        </p>
      );
    case 'ready':
      break;
  }
  const { trouble } = session.state.session;
  const parts: [PartName, string, JSX.Element][] = [
    [
      'context',
      trans.__('Context'),
      <>
        <Gauge gauge={session.state.gauge} trans={trans} />
        <Settings {...props} />
      </>
    ],
    ['compaction', trans.__('Compaction'), <Compaction {...props} />],
    ['turns', trans.__('Turns'), <Turns {...props} />],
    ['skills', trans.__('Skills'), <Skills {...props} />],
    ['memory', trans.__('Memory'), <Memory {...props} />],
    ['agents', trans.__('Sub-agents'), <Agents {...props} />]
  ];
  return (
    <>
      {trouble !== '' ? (
        <p className="nbagent-Notice nbagent-mod-error" role="alert">
          {trouble}
        </p>
      ) : null}
      {session.offline ? (
        <p className="nbagent-Notice" role="status">
          {trans.__(
            'The connection to the kernel is lost; it is tried again. What is shown is from before.'
          )}
        </p>
      ) : null}
      <RunningTurn {...props} />
      <Question {...props} />
      {parts.map(([name, title, body]) => (
        <Section
          key={name}
          id={name}
          title={title}
          open={open[name]}
          onToggle={on => onToggle(name, on)}
        >
          {body}
        </Section>
      ))}
    </>
  );
}

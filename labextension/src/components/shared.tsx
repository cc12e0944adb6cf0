/** What the parts of the panel share: the props they get, a section that folds, a field with a button. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { HitRow } from '../protocol.js';
import type { AgentSession } from '../session.js';

/** What the panel asks of JupyterLab. */
export interface PanelHost {
  /** Open the file of a hit at its line. */
  openHit: (hit: HitRow) => void;
  /** Bring a cell into view; returns whether the notebook has it. */
  showCell: (cellId: string) => boolean;
}

/** What every part gets. */
export interface PartProps {
  session: AgentSession;
  trans: TranslationBundle;
  host: PanelHost;
}

/** A part of the panel with a heading that folds it. */
export function Section(props: {
  id: string;
  title: string;
  open: boolean;
  onToggle: (open: boolean) => void;
  children: React.ReactNode;
}): JSX.Element {
  const { id, title, open, onToggle, children } = props;
  const heading = `nbagent-${id}-heading`;
  return (
    <section className="nbagent-Section" aria-labelledby={heading}>
      <h3 className="nbagent-Section-title">
        <button
          type="button"
          id={heading}
          aria-expanded={open}
          aria-controls={`nbagent-${id}`}
          onClick={() => onToggle(!open)}
        >
          <span aria-hidden="true" className="nbagent-Section-caret">
            {open ? '▾' : '▸'}
          </span>
          {title}
        </button>
      </h3>
      <div id={`nbagent-${id}`} hidden={!open} className="nbagent-Section-body">
        {open ? children : null}
      </div>
    </section>
  );
}

/** Return what a command does, in the words of its button. */
export function commandWords(name: string, trans: TranslationBundle): string {
  switch (name) {
    case 'preview_compaction':
      return trans.__('Write the hand-off note');
    case 'compact':
      return trans.__('Compact');
    case 'undo':
      return trans.__('Undo the compaction');
    case 'revert':
      return trans.__('Go back to a turn');
    case 'set':
      return trans.__('Change permissions or policy');
    case 'set_skill':
      return trans.__('Switch a skill');
    case 'search':
      return trans.__('Search memory');
    case 'read':
      return trans.__('Open a note');
    case 'steer':
      return trans.__('Tell the agent');
    case 'send':
      return trans.__('Tell the sub-agent');
    case 'stop':
      return trans.__('Stop');
    case 'stop_agent':
      return trans.__('Stop the sub-agent');
    case 'answer':
      return trans.__('Answer');
    default:
      return name.replace(/_/g, ' ');
  }
}

/** Return what stands in a field, as state that outlives a panel that is put away, or shows another notebook. */
export function useTyped(
  session: AgentSession,
  field: string,
  first = ''
): [string, (text: string) => void] {
  const [text, setText] = React.useState(session.typed.get(field) ?? first);
  return [
    text,
    next => {
      session.typed.set(field, next);
      setText(next);
    }
  ];
}

/** A text field with a button; the field is emptied when the text was taken. */
export function Say(props: {
  session: AgentSession;
  label: string;
  button: string;
  onSend: (text: string) => Promise<boolean>;
}): JSX.Element {
  const { session, label } = props;
  const [text, setText] = useTyped(session, label);
  const send = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    if (text.trim() !== '' && (await props.onSend(text))) {
      if (session.typed.get(label) === text) {
        setText(''); // what was typed since stays
      }
    }
  };
  return (
    <form className="nbagent-Row" onSubmit={event => void send(event)}>
      <input
        className="nbagent-Input"
        aria-label={label}
        placeholder={label}
        value={text}
        onChange={event => setText(event.target.value)}
      />
      <button type="submit" className="nbagent-Button">
        {props.button}
      </button>
    </form>
  );
}

const FEW_ROWS = 8;

/** Return the class of a list: many rows scroll in a box of their own, so that the parts below stay near. */
export function listClass(rows: number): string {
  return rows > FEW_ROWS ? 'nbagent-List nbagent-mod-long' : 'nbagent-List';
}

/** A small word beside a row, such as "stale". */
export function Badge(props: {
  kind: string;
  text: string;
  title?: string;
}): JSX.Element {
  return (
    <span
      className={`nbagent-Badge nbagent-mod-${props.kind}`}
      title={props.title}
    >
      {props.text}
    </span>
  );
}

/** Tell whether the keyboard is in the panel, or nowhere: only then may the panel take the focus. */
export function mayTakeFocus(): boolean {
  const active = document.activeElement;
  return (
    active === null ||
    active === document.body ||
    active.closest('.nbagent-Panel') !== null
  );
}

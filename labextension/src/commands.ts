/** The commands: each is in the palette, some have a keyboard shortcut (schema/panel.json). */

import type { CommandRegistry } from '@lumino/commands';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { PartName } from './components/Panel.js';
import type { Follower } from './follow.js';
import type { AgentSession } from './session.js';
import { icon } from './widget.js';

export interface CommandOptions {
  commands: CommandRegistry;
  follower: Follower;
  trans: TranslationBundle;
  /** Bring the panel into view; with a part, unfold that and put the focus there. */
  show: (part?: PartName) => void;
  /** Bring the panel into view and put the focus into it. */
  enter: () => void;
}

/** Add the commands; returns their ids. */
export function addCommands(options: CommandOptions): readonly string[] {
  const { commands, follower, trans, show, enter } = options;
  const ids: string[] = [];
  const add = (
    id: string,
    label: string,
    execute: (session: AgentSession | null) => unknown,
    enabled: (session: AgentSession) => boolean = () => true,
    refused: (session: AgentSession) => string = () => ''
  ): void => {
    commands.addCommand(id, {
      label,
      caption: () => {
        const session = follower.session;
        return (session && refused(session)) || label;
      },
      icon: id === 'nbagent:open' ? icon : undefined,
      describedBy: { args: { type: 'object', properties: {} } },
      isEnabled: () => {
        const session = follower.session;
        return (
          id === 'nbagent:open' ||
          (session?.phase === 'ready' &&
            enabled(session) &&
            refused(session) === '')
        );
      },
      execute: () => execute(follower.session)
    });
    ids.push(id);
  };
  add('nbagent:open', trans.__('Show the Agent Panel'), () => enter());
  add('nbagent:search-memory', trans.__('Search Memory'), () => show('memory'));
  add('nbagent:show-skills', trans.__('Show Skills'), () => show('skills'));
  add('nbagent:show-turns', trans.__('Show Turns'), () => show('turns'));
  add(
    'nbagent:compact',
    trans.__('Compact the Conversation …'),
    session => {
      show('compaction');
      return session?.previewCompaction();
    },
    () => true,
    session => session.refusal('preview_compaction')
  );
  add(
    'nbagent:undo-compaction',
    trans.__('Undo the Last Compaction'),
    session => session?.undoCompaction(),
    session => session.state.compaction.entry !== ''
  );
  add('nbagent:stop-turn', trans.__('Stop the Running Turn'), session => {
    if (session?.state.turn.status !== 'idle') {
      return session?.stop();
    }
    show(); // a shortcut is answered also when there is nothing to do
    session.say(trans.__('No turn is running; there is nothing to stop.'));
    return undefined;
  });
  tellChanges(commands, follower);
  return ids;
}

/** Let palette, menus and toolbar know when a command can be used, or cannot be any more. */
function tellChanges(commands: CommandRegistry, follower: Follower): void {
  let followed: AgentSession | null = null;
  let known = '';
  const look = (): void => {
    const { phase, state } = followed ?? {};
    const refused = state?.session.refused.map(r => r.name + r.line).join(' ');
    const now = `${phase} ${state?.turn.status} ${state?.compaction.entry} ${refused}`;
    if (now !== known) {
      known = now;
      commands.notifyCommandChanged();
    }
  };
  const follow = (): void => {
    followed?.changed.disconnect(look);
    followed = follower.session;
    followed?.changed.connect(look);
    look();
  };
  follower.changed.connect(follow);
  follow();
}

/** What the panel asks of JupyterLab: open a file at a line, bring a cell into view. */

import { PathExt } from '@jupyterlab/coreutils';
import type { CommandRegistry } from '@lumino/commands';

import type { PanelHost } from './components/shared.js';
import type { Follower } from './follow.js';
import type { HitRow } from './protocol.js';

/** What of a file editor is used. */
interface EditorWidget {
  context?: { ready: Promise<void> };
  content?: {
    editor?: {
      setCursorPosition: (at: { line: number; column: number }) => void;
      revealPosition: (at: { line: number; column: number }) => void;
      focus: () => void;
    };
  };
}

/** Open `relative`, a path from the notebook's folder, at a line from 1; throws when the server has no such file. */
export async function openAtLine(
  commands: CommandRegistry,
  notebook: string,
  relative: string,
  line: number
): Promise<void> {
  const path = PathExt.join(PathExt.dirname(notebook), relative);
  if (path.startsWith('..')) {
    throw new Error(`${path} is outside of what the server shows`);
  }
  const opened = (await commands.execute('docmanager:open', {
    path,
    factory: 'Editor'
  })) as EditorWidget | undefined;
  await opened?.context?.ready;
  const editor = opened?.content?.editor;
  const at = { line: Math.max(0, line - 1), column: 0 };
  editor?.setCursorPosition(at);
  editor?.revealPosition(at);
  editor?.focus();
}

/** Return the host for the current notebook. */
export function panelHost(
  commands: CommandRegistry,
  follower: Follower,
  canOpen: (path: string) => Promise<boolean>
): PanelHost {
  return {
    openHit: (hit: HitRow) => void openHit(commands, follower, canOpen, hit),
    showCell: (cellId: string) => {
      const notebook = follower.panel?.content;
      const index =
        notebook?.widgets.findIndex(cell => cell.model.id === cellId) ?? -1;
      if (notebook && index >= 0) {
        notebook.activeCellIndex = index;
        void notebook.scrollToItem(index);
        return true;
      }
      return false;
    }
  };
}

/** Open a hit in the editor; where the server does not show it (a hidden folder, say), in the panel. */
async function openHit(
  commands: CommandRegistry,
  follower: Follower,
  canOpen: (path: string) => Promise<boolean>,
  hit: HitRow
): Promise<void> {
  const { panel, session } = follower;
  if (panel === null || session === null) {
    return;
  }
  const notebook = panel.context.path;
  const path = PathExt.join(PathExt.dirname(notebook), hit.relative);
  if (hit.relative !== '' && !path.startsWith('..') && (await canOpen(path))) {
    await openAtLine(commands, notebook, hit.relative, hit.startLine);
  } else {
    await session.memory.read(hit.path, hit.startLine);
  }
}

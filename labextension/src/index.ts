/** The extension: one plugin that joins the panel, the status bar item, the cell marks and the commands. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';

import { addCommands } from './commands.js';
import type { PartName } from './components/Panel.js';
import { Follower } from './follow.js';
import { openAtLine, panelHost } from './host.js';
import { GaugeStatus } from './status.js';
import { AgentPanel } from './widget.js';

const PLUGIN = 'nbagent:panel';
/** The version of package.json; a test compares the two. */
export const PANEL_VERSION = '0.1.0';

const panel: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description:
    'The panel of nbagent: context, compaction, turns, skills, memory and sub-agents of the current notebook.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [
    ICommandPalette,
    ILayoutRestorer,
    IStatusBar,
    ITranslator,
    ISettingRegistry
  ],
  activate
};

function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  statusBar: IStatusBar | null,
  translator: ITranslator | null,
  settings: ISettingRegistry | null
): void {
  const trans = (translator ?? nullTranslator).load('nbagent');
  const client = `${app.name} ${app.version}, panel ${PANEL_VERSION}`;
  const follower = new Follower(tracker, client, trans);
  const contents = app.serviceManager.contents;
  const canOpen = async (path: string): Promise<boolean> => {
    try {
      await contents.get(path, { content: false });
      return true;
    } catch {
      return false; // there is none, or the server hides it
    }
  };
  const host = panelHost(app.commands, follower, canOpen);
  const widget = new AgentPanel(follower, host, trans);
  app.shell.add(widget, 'right', { rank: 900, type: 'Agent' });
  restorer?.add(widget, widget.id);
  const show = (part?: PartName): void => {
    app.shell.activateById(widget.id);
    if (part !== undefined) {
      widget.showPart(part);
    }
  };
  const enter = (): void => {
    show();
    widget.takeFocus();
  };
  const ids = addCommands({
    commands: app.commands,
    follower,
    trans,
    show,
    enter
  });
  for (const command of ids) {
    palette?.addItem({ command, category: trans.__('Agent') });
  }
  if (statusBar !== null) {
    addStatus(statusBar, follower, trans, enter);
  }
  tellQuestions(app, follower, trans, () => {
    show();
    widget.showTop(); // where the question is
  });
  openFromWidgets(app, tracker, canOpen);
  // Loads the schema, and with it the shortcuts; there is nothing to set.
  settings?.load(PLUGIN).catch((error: unknown) => {
    console.warn(`${PLUGIN}: the shortcuts were not loaded:`, error);
  });
}

function addStatus(
  statusBar: IStatusBar,
  follower: Follower,
  trans: TranslationBundle,
  show: () => void
): void {
  const item = new GaugeStatus(follower, trans, show);
  statusBar.registerStatusItem(`${PLUGIN}-gauge`, {
    item,
    align: 'right',
    rank: 50
  });
}

/** Bring a question in front of the person: the panel for the current notebook, a notification for another one. */
function tellQuestions(
  app: JupyterFrontEnd,
  follower: Follower,
  trans: TranslationBundle,
  show: () => void
): void {
  const told = new Map<string, string>();
  follower.asked.connect((_, { panel: notebook, tool }) => {
    Notification.dismiss(told.get(notebook.id) ?? '');
    told.delete(notebook.id);
    if (tool === '' || notebook.isDisposed) {
      return;
    }
    if (notebook === follower.panel) {
      show();
      return; // a notification would lie over the panel
    }
    const id = Notification.warning(
      trans.__(
        '%1: the agent asks whether it may use %2.',
        notebook.title.label,
        tool
      ),
      {
        autoClose: false,
        actions: [
          {
            label: trans.__('Answer'),
            callback: () => {
              app.shell.activateById(notebook.id);
              show();
            }
          }
        ]
      }
    );
    told.set(notebook.id, id);
  });
}

/**
 * Widgets in cells ask for a file with the event `nbagent:open`; `detail` is {relative, line, refused}, of which
 * `refused` is called when the server does not show the file: the widget then shows the lines itself.
 */
function openFromWidgets(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  canOpen: (path: string) => Promise<boolean>
): void {
  document.addEventListener('nbagent:open', event => {
    const detail: unknown = event instanceof CustomEvent ? event.detail : null;
    const node = event.composedPath()[0];
    const notebook = tracker.find(
      candidate => node instanceof Node && candidate.node.contains(node)
    );
    if (notebook === undefined || !isPlace(detail) || detail.relative === '') {
      return;
    }
    event.preventDefault();
    const { relative, line, refused } = detail;
    const from = notebook.context.path;
    const path = PathExt.join(PathExt.dirname(from), relative);
    const open = async (): Promise<void> => {
      if (!path.startsWith('..') && (await canOpen(path))) {
        await openAtLine(app.commands, from, relative, line);
      } else {
        refused();
      }
    };
    open().catch((error: unknown) => Notification.error(String(error)));
  });
}

interface Place {
  relative: string;
  line: number;
  refused: () => void;
}

function isPlace(value: unknown): value is Place {
  const place = value as Partial<Record<keyof Place, unknown>> | null;
  return (
    typeof place?.relative === 'string' &&
    typeof place.line === 'number' &&
    typeof place.refused === 'function'
  );
}

export default [panel];

/** The extension: one plugin that joins the panel, the status bar item, the cell marks and the commands. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
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
  const host = panelHost(app.commands, follower, async path => {
    try {
      await contents.get(path, { content: false });
      return true;
    } catch {
      return false;
    }
  });
  const widget = new AgentPanel(follower, host, trans);
  app.shell.add(widget, 'right', { rank: 900, type: 'Agent' });
  restorer?.add(widget, widget.id);
  const show = (part?: PartName): void => {
    app.shell.activateById(widget.id);
    if (part !== undefined) {
      widget.showPart(part);
    }
  };
  const ids = addCommands({ commands: app.commands, follower, trans, show });
  for (const command of ids) {
    palette?.addItem({ command, category: trans.__('Agent') });
  }
  if (statusBar !== null) {
    addStatus(statusBar, follower, trans, show);
  }
  tellQuestions(app, follower, trans, () => {
    show();
    widget.node.scrollTop = 0; // where the question is
  });
  openFromWidgets(app, tracker);
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

/** Widgets in cells ask for a file with the event `nbagent:open`; `detail` is {relative, line}. */
function openFromWidgets(
  app: JupyterFrontEnd,
  tracker: INotebookTracker
): void {
  document.addEventListener('nbagent:open', event => {
    const detail: unknown = event instanceof CustomEvent ? event.detail : null;
    const node = event.composedPath()[0];
    const notebook = tracker.find(
      candidate => node instanceof Node && candidate.node.contains(node)
    );
    if (
      notebook === undefined ||
      !isPlace(detail) ||
      detail.relative === '' ||
      isHidden(detail.relative)
    ) {
      return; // the widget shows the lines itself
    }
    event.preventDefault();
    const path = notebook.context.path;
    openAtLine(app.commands, path, detail.relative, detail.line).catch(
      (error: unknown) => Notification.error(String(error))
    );
  });
}

/** Tell whether the server refuses a path, as it does by default: a folder or file whose name begins with a dot. */
function isHidden(relative: string): boolean {
  return relative.split('/').some(part => /^\.(?!\.?$)/.test(part));
}

function isPlace(value: unknown): value is { relative: string; line: number } {
  const place = value as { relative?: unknown; line?: unknown } | null;
  return typeof place?.relative === 'string' && typeof place.line === 'number';
}

export default [panel];

/** Attachment: keeps an AgentSession linked to the kernel of one notebook, whatever happens to that kernel. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { UUID } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { keptText, KeptComms } from './kept.js';
import { Link } from './link.js';
import { TARGET, type FrontMessage } from './protocol.js';
import { AgentSession } from './session.js';

const COMMS = new KeptComms(() => window.localStorage);
const STOP_WAIT_MS = 1000;
const LINE_STAYS_MS = 20_000;

export interface AttachOptions {
  context: ISessionContext;
  /** How this front end calls itself. */
  client: string;
  trans: TranslationBundle;
}

export class Attachment implements IDisposable {
  constructor(private _options: AttachOptions) {
    const { context } = _options;
    this._path = context.path;
    this.session = new AgentSession({
      interrupt: () => void context.session?.kernel?.interrupt(),
      stopWaitMs: STOP_WAIT_MS,
      lineStaysMs: LINE_STAYS_MS,
      answeredElsewhere: answer =>
        _options.trans.__(
          'Another window has answered the question: %1.',
          answer
        ),
      offlineLine: _options.trans.__(
        'The connection to the kernel is lost; this is sent when it is back.'
      ),
      keptDraft: this._note
    });
    context.kernelChanged.connect(this._onKernel, this);
    context.statusChanged.connect(this._onStatus, this);
    context.connectionStatusChanged.connect(this._onConnection, this);
    context.propertyChanged.connect(this._onProperty, this);
    this._use(context.session?.kernel ?? null);
  }

  readonly session: AgentSession;

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    Signal.clearData(this);
    this._use(null);
    Signal.clearData(this.session);
  }

  private _onKernel(): void {
    this._use(this._options.context.session?.kernel ?? null);
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    if (['restarting', 'autorestarting', 'dead'].includes(status)) {
      this._lost();
    } else if (status === 'starting') {
      // Another window restarted it; what the old process was asked is never answered. JupyterLab would send to a
      // subshell of the old process (4.6), unless all comms of the target are disposed.
      this._comm?.dispose();
      this._lost();
      this._adopting = null;
      void this._adopt();
    }
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    this.session.offline = status !== 'connected';
    if (this.session.offline) {
      return;
    }
    this._link?.greet(); // deltas may have been missed
    void this._adopt();
  }

  private _onProperty(_: unknown, property: string): void {
    if (property === 'path') {
      this._note.write(null);
      this._path = this._options.context.path;
      this.session.draft.keep(); // a page that is loaded again looks under the new name
      this._link?.renamed(this._path);
    }
  }

  private _use(kernel: Kernel.IKernelConnection | null): void {
    if (kernel === this._kernel) {
      return;
    }
    if (this._kernel !== null && !this._kernel.isDisposed) {
      this._kernel.removeCommTarget(TARGET, this._onOpen);
    }
    this._drop();
    this._kernel = kernel;
    this.session.elsewhere = kernel !== null && !kernel.handleComms;
    if (kernel?.handleComms === true) {
      kernel.registerCommTarget(TARGET, this._onOpen);
      void this._adopt();
    }
  }

  /** The kernel opened its comm: nbagent was loaded. */
  private _onOpen = (
    comm: Kernel.IComm,
    message: { content: object }
  ): void => {
    const link = this._linked(comm);
    link.receive((message.content as { data?: unknown }).data);
  };

  /**
   * Take up the comm of a kernel in which nbagent was loaded before this page was, or see whether it is still there.
   *
   * A kernel tells its comms when no cell runs; in mid-turn only the comm itself may be heard. So this page greets on
   * the one that it knew before it was loaded again, and gives it up when the kernel does not name it.
   */
  private async _adopt(): Promise<void> {
    const kernel = this._kernel;
    if (kernel?.handleComms !== true || this._adopting?.kernel === kernel) {
      return;
    }
    const ask = (this._adopting = { kernel });
    this.session.lookFor(true);
    const first = this._comm ?? this._greetOn(kernel, COMMS.of(kernel.id));
    try {
      const reply = await kernel.requestCommInfo({ target_name: TARGET });
      const comms = reply.content.status === 'ok' ? reply.content.comms : {};
      if (ask !== this._adopting || this._comm !== first) {
        return; // what was opened or closed since is newer than the answer
      }
      if (first !== null && !(first.commId in comms)) {
        this._lost();
        first.dispose();
      }
      if (this._comm === null) {
        this._greetOn(kernel, Object.keys(comms).at(-1));
      }
    } catch (error) {
      if (!kernel.isDisposed && this._adopting === ask) {
        console.warn('nbagent: the kernel did not tell its comms:', error);
      }
    } finally {
      if (this._adopting === ask) {
        this._adopting = null;
        this.session.lookFor(false);
      }
    }
  }

  private _greetOn(
    kernel: Kernel.IKernelConnection,
    id: string | undefined
  ): Kernel.IComm | null {
    if (id === undefined || kernel.hasComm(id)) {
      return null;
    }
    const comm = kernel.createComm(TARGET, id);
    this._linked(comm).greet();
    return comm;
  }

  /** The kernel has no comm any more. */
  private _lost(): void {
    if (this._kernel !== null) {
      COMMS.keep(this._kernel.id, null);
    }
    this._drop();
  }

  private _linked(comm: Kernel.IComm): Link {
    this._drop();
    const link = new Link({
      send: (message: FrontMessage) => {
        if (!comm.isDisposed) {
          comm.send(message);
        }
      },
      client: this._options.client,
      notebook: this._options.context.path,
      newId: () => UUID.uuid4(),
      lostLine: this._options.trans.__(
        'The kernel is gone; it may not have done this.'
      )
    });
    comm.onMsg = message => link.receive(message.content.data);
    comm.onClose = () => {
      if (this._link === link) {
        this._lost();
      }
    };
    if (this._kernel !== null) {
      COMMS.keep(this._kernel.id, comm.commId);
    }
    this._comm = comm;
    this._link = link;
    this.session.connect(link);
    return link;
  }

  private _drop(): void {
    const link = this._link;
    this._link = this._comm = null;
    link?.lose();
    if (link !== null) {
      this.session.connect(null);
    }
  }

  private _disposed = false;
  private _kernel: Kernel.IKernelConnection | null = null;
  private _adopting: { kernel: Kernel.IKernelConnection } | null = null;
  private _comm: Kernel.IComm | null = null;
  private _link: Link | null = null;
  private _path: string;
  /** Of this tab alone: two windows may edit two notes. */
  private _note = keptText(
    () => window.sessionStorage,
    () => `nbagent:note:${this._path}`
  );
}

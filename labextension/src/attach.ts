/** Attachment: keeps an AgentSession linked to the kernel of one notebook, whatever happens to that kernel. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { UUID } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { Link } from './link.js';
import { TARGET, type FrontMessage } from './protocol.js';
import { AgentSession } from './session.js';

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
    this.session = new AgentSession({
      interrupt: () => void context.session?.kernel?.interrupt(),
      stopWaitMs: STOP_WAIT_MS,
      lineStaysMs: LINE_STAYS_MS,
      answeredElsewhere: answer =>
        _options.trans.__(
          'Another window has answered the question: %1.',
          answer
        )
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
      this._drop();
    }
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    this.session.offline = status !== 'connected';
    if (this.session.offline) {
      return;
    }
    if (this._link !== null) {
      this._link.greet(); // deltas may have been missed
    } else {
      void this._adopt();
    }
  }

  private _onProperty(_: unknown, property: string): void {
    if (property === 'path') {
      this._link?.renamed(this._options.context.path);
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
    if (kernel !== null && kernel.handleComms) {
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

  /** Take up the comm of a kernel in which nbagent was loaded before this page was. */
  private async _adopt(): Promise<void> {
    const kernel = this._kernel;
    if (kernel === null || this._link !== null || this._adopting === kernel) {
      return;
    }
    this._adopting = kernel;
    this.session.lookFor(true);
    try {
      const reply = await kernel.requestCommInfo({ target_name: TARGET });
      const comms = reply.content.status === 'ok' ? reply.content.comms : {};
      const ids = Object.keys(comms);
      const id = ids[ids.length - 1];
      if (
        id !== undefined &&
        kernel === this._kernel &&
        this._link === null &&
        !kernel.hasComm(id)
      ) {
        this._linked(kernel.createComm(TARGET, id)).greet();
      }
    } catch (error) {
      if (!kernel.isDisposed && kernel === this._kernel) {
        console.warn('nbagent: the kernel did not tell its comms:', error);
      }
    } finally {
      if (this._adopting === kernel) {
        this._adopting = null;
        this.session.lookFor(false);
      }
    }
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
        this._drop();
      }
    };
    this._link = link;
    this.session.connect(link);
    return link;
  }

  private _drop(): void {
    const link = this._link;
    this._link = null;
    link?.lose();
    if (link !== null) {
      this.session.connect(null);
    }
  }

  private _disposed = false;
  private _kernel: Kernel.IKernelConnection | null = null;
  private _adopting: Kernel.IKernelConnection | null = null;
  private _link: Link | null = null;
}

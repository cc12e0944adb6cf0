/** Link: the talk with one kernel over its comm. Knows the protocol, and nothing of JupyterLab. */

import { Signal, type ISignal } from '@lumino/signaling';

import {
  command,
  hello,
  merged,
  pong,
  readMessage,
  speaks,
  StateReader,
  type FrontMessage,
  type JsonObject,
  type PanelState,
  type Reply
} from './protocol.js';

/** `greeting`: hello was sent, no answer yet. `mismatch`: no version fits; `line` says what to do. */
export type Phase = 'greeting' | 'ready' | 'mismatch' | 'lost';

export interface LinkOptions {
  /** Puts a message on the wire. */
  send: (message: FrontMessage) => void;
  /** How this front end calls itself. */
  client: string;
  /** The notebook's path on the server. */
  notebook: string;
  /** Returns ids that no other window uses. */
  newId: () => string;
  /** What a command that was not answered ends with. */
  lostLine: string;
}

interface Pending {
  resolve: (reply: Reply) => void;
  queued: (line: string) => void;
}

export class Link {
  constructor(private _options: LinkOptions) {}

  /** Emitted when state, phase or line changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get phase(): Phase {
    return this._phase;
  }

  get line(): string {
    return this._line;
  }

  get state(): PanelState {
    return this._state;
  }

  /** Say that this front end is there, or ask for the whole state again. */
  greet(): void {
    if (this._phase === 'lost') {
      return;
    }
    this._awaitsSnapshot = true;
    this._options.send(hello(this._options.client, this._options.notebook));
  }

  /** Take a message of the kernel. */
  receive(data: unknown): void {
    const message = readMessage(data);
    switch (message.kind) {
      case 'welcome':
        this.greet();
        break;
      case 'snapshot':
        if (!speaks(message.version)) {
          break; // it answers another window, of another version
        }
        this._parts = message.parts;
        this._seq = message.seq;
        this._awaitsSnapshot = false;
        this._show('ready', '');
        break;
      case 'delta':
        this._delta(message.seq, message.parts);
        break;
      case 'mismatch':
        if (this._phase !== 'ready') {
          this._show('mismatch', message.line);
        }
        break;
      case 'ping':
        this._options.send(pong(message.token, this._phase === 'ready'));
        break;
      case 'reply':
        this._replied(message);
        break;
      case 'unknown':
        break;
    }
  }

  /**
   * Send a command and return its answer; never rejects.
   *
   * `queued` is called when it has to wait for the running turn; the answer comes later then.
   */
  run(
    name: string,
    fields: JsonObject = {},
    queued: (line: string) => void = () => undefined
  ): Promise<Reply> {
    const id = this._options.newId();
    if (this._phase !== 'ready') {
      return Promise.resolve(failed(id, this._line || this._options.lostLine));
    }
    return new Promise(resolve => {
      this._pending.set(id, { resolve, queued });
      try {
        this._options.send(command(id, name, fields));
      } catch (error) {
        this._pending.delete(id);
        resolve(
          failed(id, error instanceof Error ? error.message : String(error))
        );
      }
    });
  }

  /** The notebook has another path now. */
  renamed(notebook: string): void {
    this._options.notebook = notebook;
    if (this._phase === 'ready') {
      void this.run('notebook', { path: notebook });
    }
  }

  /** The comm or its kernel is gone: answer what waits, and be silent from now on. */
  lose(): void {
    if (this._phase === 'lost') {
      return;
    }
    for (const [id, pending] of this._pending) {
      pending.resolve(failed(id, this._options.lostLine));
    }
    this._pending.clear();
    this._show('lost', '');
    Signal.clearData(this);
  }

  private _delta(seq: number, changes: JsonObject): void {
    if (this._phase !== 'ready' || this._awaitsSnapshot || seq <= this._seq) {
      return;
    }
    if (seq !== this._seq + 1) {
      this.greet(); // something was lost on the way
      return;
    }
    this._seq = seq;
    this._parts = merged(this._parts, changes);
    this._show('ready', '');
  }

  private _replied(reply: Reply): void {
    const pending = this._pending.get(reply.id);
    if (pending === undefined) {
      return; // of another window
    }
    if (reply.status === 'queued') {
      pending.queued(reply.line);
      return;
    }
    this._pending.delete(reply.id);
    pending.resolve(reply);
  }

  private _show(phase: Phase, line: string): void {
    this._phase = phase;
    this._line = line;
    this._state = this._reader.read(this._parts);
    this._changed.emit();
  }

  private _changed = new Signal<this, void>(this);
  private _phase: Phase = 'greeting';
  private _line = '';
  private _seq = 0;
  private _awaitsSnapshot = false;
  private _parts: JsonObject = {};
  private _reader = new StateReader();
  private _state: PanelState = this._reader.read(this._parts);
  private _pending = new Map<string, Pending>();
}

function failed(id: string, line: string): Reply {
  return { kind: 'reply', id, status: 'error', line, result: {} };
}

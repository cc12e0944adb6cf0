/** Sender: sends commands to the kernel and says what came of each in a line of its own. */

import type { Lines } from './lines.js';
import type { Link } from './link.js';
import type { JsonObject, Reply } from './protocol.js';

/** Commands that run; the panel disables what would send them twice. */
export type Busy = 'preview' | 'compact' | 'undo' | 'search' | 'revert';

/** Commands that a person does not press: they say nothing as a rule. */
const QUIET: readonly string[] = ['page', 'question'];

export class Sender {
  /**
   * `link` gives the kernel's connection as it is now; `changed` is called when anything changed that is shown;
   * `delay` gives what is told of a press that cannot be sent yet, '' when it can.
   */
  constructor(
    private _lines: Lines,
    private _link: () => Link | null,
    private _changed: () => void,
    private _delay: () => string = () => ''
  ) {}

  isBusy(what: Busy): boolean {
    return this._busy.has(what);
  }

  /** Run a command of which one at a time makes sense. */
  async only(
    what: Busy,
    name: string,
    fields: JsonObject,
    queued?: () => void
  ): Promise<Reply | null> {
    if (this._busy.has(what)) {
      return null;
    }
    this._busy.add(what);
    this._changed();
    try {
      return await this.ask(name, fields, queued);
    } finally {
      this._busy.delete(what);
      this._changed();
    }
  }

  /** Run a command and say its line; returns null when it failed, or the kernel is another by then. */
  async ask(
    name: string,
    fields: JsonObject,
    queued: () => void = () => undefined
  ): Promise<Reply | null> {
    const link = this._link();
    if (link === null) {
      return null;
    }
    const silent = QUIET.includes(name);
    const key = silent ? 0 : this._lines.begin(name);
    if (!silent) {
      this._lines.wait(key, name, this._delay());
    }
    const reply = await link.run(name, fields, line => {
      queued();
      this._lines.wait(key, name, line);
    });
    if (link !== this._link()) {
      return null;
    }
    if (!silent) {
      this._lines.end(key, name, reply);
    } else if (reply.line !== '') {
      this._lines.say(reply.line, reply.status === 'error');
    }
    return reply.status === 'ok' ? reply : null;
  }

  /** Send words; true once they wait to be heard. A second reply says whether they were; its line is said then. */
  tell(name: string, fields: JsonObject): Promise<boolean> {
    const link = this._link();
    if (link === null) {
      return Promise.resolve(false);
    }
    const key = this._lines.another(); // each message is heard, or not, by itself
    this._lines.wait(key, name, this._delay());
    return new Promise(resolve => {
      const queued = (line: string): void => {
        this._lines.wait(key, name, line);
        resolve(true);
      };
      void link.run(name, fields, queued).then(reply => {
        if (link === this._link()) {
          this._lines.end(key, name, reply);
        }
        resolve(reply.status === 'ok');
      });
    });
  }

  private _busy = new Set<Busy>();
}

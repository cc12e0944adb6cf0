/** A link and a session with a kernel that is played by the test. */

import type { Kept } from '../src/kept.js';
import { Link } from '../src/link.js';
import type { FrontMessage, JsonObject } from '../src/protocol.js';
import { AgentSession } from '../src/session.js';
import { bundle, obj } from './bundles.js';

export interface Desk {
  link: Link;
  session: AgentSession;
  /** What was sent so far, oldest first. */
  sent: FrontMessage[];
  /** How often the kernel was interrupted. */
  interrupts: () => number;
  /** Answer the last command that was sent. */
  answer: (fields: JsonObject) => Promise<void>;
}

/** Return a desk with a link that has greeted; `ready` after the snapshot. */
export function desk(
  ready = true,
  lineStaysMs?: number,
  keptDraft?: Kept
): Desk {
  const sent: FrontMessage[] = [];
  let ids = 0;
  let interrupts = 0;
  const link = new Link({
    send: message => sent.push(message),
    client: 'jupyterlab 0.1.0',
    notebook: 'work/analysis.ipynb',
    newId: () => `a${++ids}`,
    lostLine: 'gone'
  });
  const session = new AgentSession({
    interrupt: () => interrupts++,
    stopWaitMs: 5,
    offlineLine: 'sent later',
    answeredElsewhere: answer => `answered elsewhere: ${answer}`,
    ...(keptDraft === undefined ? {} : { keptDraft }),
    ...(lineStaysMs === undefined ? {} : { lineStaysMs })
  });
  session.connect(link);
  link.receive({ kind: 'welcome', version: 1, least: 1, package: '0.1.0' });
  if (ready) {
    link.receive(snapshot());
  }
  return {
    link,
    session,
    sent,
    interrupts: () => interrupts,
    answer: async fields => {
      const command = sent.filter(m => m.kind === 'command').at(-1);
      link.receive({
        kind: 'reply',
        id: command?.id ?? '',
        status: 'ok',
        line: '',
        result: null,
        ...fields
      });
      await settled();
    }
  };
}

/** Return a snapshot of the state in the bundles. */
export function snapshot(seq = 0): JsonObject {
  const parts = obj(bundle('state').parts);
  return { kind: 'snapshot', version: 1, seq, parts };
}

/** Let promises run. */
export async function settled(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, 0));
}

/** Return what was sent last. */
export function lastOf(sent: readonly FrontMessage[]): FrontMessage {
  const last = sent.at(-1);
  if (last === undefined) {
    throw new Error('nothing was sent');
  }
  return last;
}

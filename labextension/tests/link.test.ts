import assert from 'node:assert/strict';
import { test } from 'node:test';

import { merged } from '../src/protocol.js';
import { bundle, list, obj } from './bundles.js';
import { desk, lastOf, settled, snapshot } from './desk.js';

test('the opening is the exchange of the bundle', () => {
  const { link, sent } = desk(false);
  const front = [];
  for (const { from, data } of list(bundle('opening').exchange)) {
    if (from === 'kernel' && obj(data).kind !== 'welcome') {
      link.receive(data);
    } else if (from === 'front') {
      front.push(data);
    }
  }
  assert.deepEqual(sent, front);
  assert.equal(link.phase, 'ready');
});

test('deltas change the state, an old one does not', () => {
  const { link } = desk();
  const { messages, start, end } = bundle('deltas');
  link.receive({ kind: 'snapshot', version: 1, seq: 0, parts: start });
  for (const message of list(messages)) {
    link.receive(message);
  }
  link.receive(list(messages)[0]);
  assert.equal(link.state.gauge.usedTokens, obj(obj(end).gauge).used_tokens);
  assert.equal(link.state.turn.turn, obj(obj(end).turn).turn);
});

test('a gap asks for the whole state, and nothing is believed until it comes', () => {
  const { link, sent } = desk();
  const before = sent.length;
  const far = { kind: 'delta', seq: 5, parts: { turn: { step: 9 } } };
  link.receive(far);
  link.receive({ ...far, seq: 1 });
  link.receive({ ...far, seq: 6 });
  assert.deepEqual(
    sent.slice(before).map(message => message.kind),
    ['hello']
  );
  assert.equal(link.state.turn.step, 0);
  link.receive(snapshot(6));
  link.receive({ kind: 'delta', seq: 7, parts: { turn: { step: 4 } } });
  assert.equal(link.state.turn.step, 4);
});

test('a snapshot for another window changes nothing that is not so', () => {
  const { link } = desk();
  link.receive({ kind: 'delta', seq: 1, parts: { turn: { step: 2 } } });
  const parts = merged(obj(snapshot().parts), { turn: { step: 2 } });
  link.receive({ kind: 'snapshot', version: 1, seq: 1, parts });
  link.receive({ kind: 'delta', seq: 2, parts: { turn: { step: 3 } } });
  assert.equal(link.state.turn.step, 3);
  link.receive({ kind: 'snapshot', version: 9, seq: 9, parts: {} });
  assert.equal(link.state.turn.step, 3);
});

test('where no version fits, the line of the kernel is shown and nothing is sent', async () => {
  const { link, sent, session } = desk(false);
  const message = obj(bundle('versions').message);
  link.receive(message);
  assert.equal(session.phase, 'mismatch');
  assert.equal(session.mismatch, message.line);
  const before = sent.length;
  const reply = await link.run('undo');
  assert.equal(reply.status, 'error');
  assert.equal(reply.line, message.line);
  assert.equal(sent.length, before);
});

test('a mismatch of another window does not end this one', () => {
  const { link } = desk();
  link.receive(bundle('versions').message);
  assert.equal(link.phase, 'ready');
});

test('a command gets its own answer, and not that of another window', async () => {
  const { link, sent } = desk();
  const run = link.run('undo');
  const { id } = lastOf(sent);
  link.receive({ kind: 'reply', id: 'other', status: 'ok', line: 'not mine' });
  link.receive({ kind: 'reply', id, status: 'ok', line: 'mine', result: null });
  assert.equal((await run).line, 'mine');
});

test('a command that waits for the turn says so, and is answered later', async () => {
  const { link, sent } = desk();
  const told: string[] = [];
  const run = link.run('compact', {}, line => told.push(line));
  const { id } = lastOf(sent);
  link.receive({ kind: 'reply', id, status: 'queued', line: 'later' });
  await settled();
  assert.deepEqual(told, ['later']);
  link.receive({ kind: 'reply', id, status: 'ok', line: 'done', result: {} });
  assert.equal((await run).line, 'done');
});

test('a kernel that dies answers everything that waits', async () => {
  const { link, session } = desk();
  const run = link.run('undo');
  link.lose();
  assert.deepEqual([(await run).status, (await run).line], ['error', 'gone']);
  assert.equal(session.phase, 'absent');
  assert.equal((await link.run('undo')).status, 'error');
});

test('a ping is answered at once', () => {
  const { link, sent } = desk();
  link.receive({ kind: 'ping', token: 't9' });
  assert.deepEqual(sent.at(-1), { kind: 'pong', token: 't9', approvals: true });
});

test('a notebook that is renamed tells its new path', () => {
  const { link, sent } = desk();
  link.renamed('work/other.ipynb');
  const { name, path } = lastOf(sent);
  assert.deepEqual([name, path], ['notebook', 'work/other.ipynb']);
});

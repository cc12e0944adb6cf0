import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Pager } from '../src/pager.js';
import type { JsonObject, Page } from '../src/protocol.js';
import { bundle, list, obj } from './bundles.js';
import { desk, settled } from './desk.js';

const EXCHANGES = list(bundle('commands').exchanges);
const PREVIEW = obj(EXCHANGES[0]?.reply);

test('compaction: the note is written, edited, applied', async () => {
  const { session, sent, answer } = desk();
  void session.previewCompaction();
  assert.equal(session.isBusy('preview'), true);
  void session.previewCompaction();
  assert.equal(sent.filter(m => m.name === 'preview_compaction').length, 1);
  await answer({ result: PREVIEW.result ?? null });
  assert.equal(session.draft.preview?.lost, 2);
  session.draft.edit('mine');
  void session.compact();
  assert.equal(sent.at(-1)?.note, 'mine');
  await answer({ line: 'The conversation was compacted.' });
  assert.equal(session.draft.preview, null);
  assert.deepEqual(session.line, {
    text: 'The conversation was compacted.',
    error: false
  });
});

test('a compaction that fails keeps the edited note', async () => {
  const { session, answer } = desk();
  void session.previewCompaction();
  await answer({ result: PREVIEW.result ?? null });
  session.draft.edit('mine');
  void session.compact();
  await answer({ status: 'error', line: 'no room' });
  assert.equal(session.draft.note, 'mine');
  assert.deepEqual(session.line, { text: 'no room', error: true });
  assert.equal(session.isBusy('compact'), false);
});

test('a stop before the kernel answered interrupts it at once', async () => {
  const waiting = desk(false);
  await waiting.session.stop();
  assert.equal(waiting.interrupts(), 1);
  waiting.session.connect(null);
  await waiting.session.stop();
  assert.equal(waiting.interrupts(), 2);
});

test('a stop that is not answered interrupts the kernel, one that is does not', async () => {
  const slow = desk();
  void slow.session.stop();
  await new Promise(resolve => setTimeout(resolve, 20));
  assert.equal(slow.interrupts(), 1);
  const quick = desk();
  void quick.session.stop();
  await quick.answer({ line: 'Stopping.' });
  await new Promise(resolve => setTimeout(resolve, 20));
  assert.equal(quick.interrupts(), 0);
  assert.equal(quick.session.line.text, 'Stopping.');
});

test('pages are asked for when they are wanted, and again when they are out of date', async () => {
  const { link, session, sent, answer } = desk();
  const pages = (): unknown[] => sent.filter(m => m.name === 'page');
  assert.equal(pages().length, 0);
  void session.catalog.want();
  void session.catalog.want();
  assert.equal(pages().length, 1);
  const page = EXCHANGES.find(
    e => obj(e.command).name === 'page' && obj(e.command).of === 'catalog'
  );
  await answer({ result: obj(page?.reply).result ?? null });
  assert.ok(session.catalog.rows.length > 0);
  link.receive({ kind: 'delta', seq: 1, parts: { catalog: { revision: 9 } } });
  assert.equal(pages().length, 2);
});

test('another kernel begins with nothing of the one before', async () => {
  const { session, answer } = desk();
  void session.memory.search('port');
  const search = EXCHANGES.find(e => obj(e.command).name === 'search');
  await answer({ result: obj(search?.reply).result ?? null });
  assert.ok(session.memory.found);
  session.connect(null);
  assert.equal(session.phase, 'absent');
  assert.equal(session.memory.found, null);
  assert.equal(session.state.gauge.usedTokens, 0);
});

test('a question is told when it comes, and when it is gone', async () => {
  const { link, session, sent } = desk();
  const told: string[] = [];
  session.asked.connect((_, tool) => told.push(tool));
  const { start, messages } = bundle('approval');
  link.receive({ kind: 'snapshot', version: 1, seq: 1, parts: start });
  for (const { from, data } of list(messages)) {
    if (from === 'kernel') {
      link.receive(data);
    } else {
      void session.answer('q1', 'y');
      assert.equal(sent.at(-1)?.approval, 'q1');
      assert.equal(sent.at(-1)?.answer, 'y');
    }
  }
  await settled();
  assert.deepEqual(told, ['python', '']);
});

test('a question is gone with its kernel', () => {
  const { link, session } = desk();
  const told: string[] = [];
  session.asked.connect((_, tool) => told.push(tool));
  const approval = { approval: 'q1', tool: 'python', text: 'May it?' };
  link.receive({ kind: 'delta', seq: 1, parts: { approval } });
  session.connect(null);
  assert.deepEqual(told, ['python', '']);
});

test('while a kernel is asked for its comms the panel waits, and then says what it found', () => {
  const { session } = desk(false);
  session.connect(null);
  session.lookFor(true);
  assert.equal(session.phase, 'greeting');
  session.lookFor(false);
  assert.equal(session.phase, 'absent');
});

test('the turns of many cells are asked for in portions', async () => {
  const { session, sent, answer } = desk();
  const ids = Array.from({ length: 450 }, (_, i) => `c${i}`);
  void session.lookAtCells(ids);
  for (const count of [200, 200, 50]) {
    assert.equal((sent.at(-1)?.cells as string[]).length, count);
    await answer({ result: { rows: [{ cell: `c${count}`, number: count }] } });
  }
  assert.equal(session.cells.get('c50')?.number, 50);
  assert.equal(session.cells.size, 2);
});

test('a pager joins earlier rows in front, later rows behind', async () => {
  const fetch = (start: number, count: number): Promise<Page<number>> => {
    const total = 120;
    const first = start < 0 ? total + start : start;
    const rows = Array.from({ length: count }, (_, i) => first + i).filter(
      row => row < total
    );
    return Promise.resolve({ revision: 1, start: first, total, rows });
  };
  const fromEnd = new Pager(fetch, () => undefined, true);
  await fromEnd.want();
  assert.deepEqual([fromEnd.rows[0], fromEnd.rows.at(-1)], [70, 119]);
  await fromEnd.wantMore();
  await fromEnd.wantMore();
  assert.deepEqual([fromEnd.rows.length, fromEnd.more], [120, 0]);
  assert.deepEqual(
    fromEnd.rows,
    [...fromEnd.rows].sort((a, b) => a - b)
  );
  const forward = new Pager(fetch, () => undefined);
  await forward.want();
  await forward.wantMore();
  assert.deepEqual([forward.rows.length, forward.rows.at(-1)], [100, 99]);
  assert.equal(forward.more, 20);
});

test('a preview that waited for a turn is of what is there when it is written', async () => {
  const { link, session, answer } = desk();
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { turn: { status: 'running' } }
  });
  void session.previewCompaction();
  await answer({ status: 'queued', line: 'A turn runs.' });
  await answer({ result: PREVIEW.result ?? null });
  assert.equal(session.outdated, 'running');
  link.receive({
    kind: 'delta',
    seq: 2,
    parts: { turn: { status: 'idle' }, tree: { leaf: 'new' } }
  });
  assert.equal(session.outdated, '');
  link.receive({ kind: 'delta', seq: 3, parts: { tree: { leaf: 'newer' } } });
  assert.equal(session.outdated, 'moved');
});

test('a turn that ran while the preview was written makes it out of date', async () => {
  const { link, session, answer } = desk();
  void session.previewCompaction();
  link.receive({ kind: 'delta', seq: 1, parts: { tree: { leaf: 'new' } } });
  await answer({ result: PREVIEW.result ?? null });
  assert.equal(session.outdated, 'moved');
});

test('a line goes by itself, at the next turn, and when it is closed; an error stays', async () => {
  const turn = (seq: number, status: string): JsonObject => ({
    kind: 'delta',
    seq,
    parts: { turn: { status } }
  });
  const { session: brief } = desk(true, 5);
  brief.say('wrong', true);
  await new Promise(resolve => setTimeout(resolve, 20));
  assert.equal(brief.line.text, 'wrong');
  const gone = new Promise<void>(resolve =>
    brief.changed.connect(() => brief.line.text === '' && resolve())
  );
  brief.say('done');
  await gone;
  const { link, session } = desk();
  session.say('done');
  link.receive(turn(1, 'running'));
  assert.equal(session.line.text, '');
  session.say('wrong', true);
  link.receive(turn(2, 'idle'));
  link.receive(turn(3, 'running'));
  assert.equal(session.line.text, 'wrong');
  session.say('');
  assert.equal(session.line.text, '');
});

test('each of several queued commands has its line, and keeps it until it is done', async () => {
  const { link, session, sent } = desk();
  const reply = async (
    name: string,
    status: string,
    line: string
  ): Promise<void> => {
    const id = sent.find(m => m.name === name)?.id ?? '';
    link.receive({ kind: 'reply', id, status, line, result: null });
    await settled();
  };
  void session.undoCompaction();
  void session.revert('77aa01bc');
  void session.set({ mode: 'plan' });
  for (const name of ['undo', 'revert', 'set']) {
    await reply(name, 'queued', 'A turn runs; this is done when it ends.');
  }
  assert.deepEqual(
    session.lines.map(line => [line.name, line.waits]),
    [
      ['undo', true],
      ['revert', true],
      ['set', true]
    ]
  );
  await reply('undo', 'error', 'there is no compaction to take back');
  await reply('revert', 'ok', 'The conversation is at the end of turn 1.');
  assert.deepEqual(
    session.lines.map(line => [line.name, line.waits, line.error]),
    [
      ['set', true, false],
      ['undo', false, true],
      ['revert', false, false]
    ]
  );
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { turn: { status: 'running' } }
  });
  assert.deepEqual(
    session.lines.map(line => line.name),
    ['set', 'undo'] // what is done was of the turn before
  );
  const key = session.lines[1]?.key ?? 0;
  session.closeLine(key);
  assert.deepEqual(
    session.lines.map(line => line.name),
    ['set']
  );
});

test('a preview that was paid stays until it is dismissed, applied or out of date', async () => {
  const { link, session, sent, answer } = desk();
  const asked = (): number =>
    sent.filter(m => m.name === 'preview_compaction').length;
  void session.previewCompaction();
  await answer({ result: PREVIEW.result ?? null });
  session.draft.edit('mine');
  await session.previewCompaction(); // the palette, or a shortcut
  assert.equal(asked(), 1);
  assert.equal(session.draft.note, 'mine');
  link.receive({ kind: 'delta', seq: 1, parts: { tree: { leaf: 'new' } } });
  void session.previewCompaction();
  assert.equal(asked(), 2);
  assert.equal(session.draft.note, 'mine'); // until the new one is there
  const note = 'another note';
  await answer({ result: { ...obj(PREVIEW.result), note } });
  assert.deepEqual(
    [session.draft.note, session.draft.earlierNote],
    [note, 'mine']
  );
  session.draft.useEarlier();
  assert.deepEqual(
    [session.draft.note, session.draft.earlierNote],
    ['mine', note]
  );
  session.draft.drop();
  assert.equal(session.draft.earlierNote, '');
});

test('a note that nobody edited gives its place to the new one', async () => {
  const { link, session, answer } = desk();
  void session.previewCompaction();
  await answer({ result: PREVIEW.result ?? null });
  link.receive({ kind: 'delta', seq: 1, parts: { tree: { leaf: 'new' } } });
  void session.previewCompaction();
  await answer({ result: { ...obj(PREVIEW.result), note: 'another' } });
  assert.deepEqual(
    [session.draft.note, session.draft.earlierNote],
    ['another', '']
  );
});

test('what the kernel would refuse is known with its reason', () => {
  const { link, session } = desk();
  assert.equal(session.refusal('preview_compaction'), '');
  const refused = [{ name: 'preview_compaction', line: 'A recording plays.' }];
  link.receive({ kind: 'delta', seq: 1, parts: { session: { refused } } });
  assert.equal(session.refusal('preview_compaction'), 'A recording plays.');
  assert.equal(session.refusal('undo'), '');
});

test('an answer that another window gave is told, one of this window is not', async () => {
  const { link, session, answer } = desk();
  const shown = (seq: number, approval: string, answered: string): void =>
    link.receive({
      kind: 'delta',
      seq,
      parts: { approval: { approval, tool: 'python', answered, answer: 'Yes' } }
    });
  shown(1, 'q1', '');
  shown(2, '', 'q1');
  assert.equal(session.line.text, 'answered elsewhere: Yes');
  session.say('');
  shown(3, 'q2', 'q1');
  void session.answer('q2', 'y');
  await answer({ line: '' });
  shown(4, '', 'q2');
  shown(5, 'q3', 'q2');
  shown(6, '', 'q2'); // stopped, or asked below the cell
  assert.equal(session.line.text, '');
});

test('an edited note outlives its kernel, the page, and Cancel', async () => {
  let text: string | null = null;
  const kept = {
    read: () => text,
    write: (written: string | null) => {
      text = written;
    }
  };
  const { link, session, sent, answer } = desk(true, undefined, kept);
  void session.previewCompaction();
  await answer({ result: PREVIEW.result ?? null });
  session.draft.edit('mine');
  session.connect(null); // a restart, or %reload_ext
  session.connect(link);
  assert.equal(session.draft.note, 'mine');
  const reloaded = desk(true, undefined, kept);
  assert.equal(reloaded.session.draft.note, 'mine');
  assert.equal(reloaded.session.draft.preview?.lost, 2);
  assert.equal(reloaded.session.outdated, '');
  reloaded.session.draft.close();
  assert.equal(reloaded.session.draft.preview, null);
  assert.equal(sent.at(-1)?.again, false);
  void reloaded.session.previewCompaction();
  await reloaded.answer({ result: PREVIEW.result ?? null });
  assert.equal(reloaded.sent.at(-1)?.again, true);
  assert.equal(reloaded.session.draft.earlierNote, 'mine');
  void reloaded.session.compact();
  await reloaded.answer({});
  assert.equal(text, null);
});

test('what another version kept of a note is passed over', () => {
  for (const text of [
    '{',
    '7',
    '{"result": 1, "note": 2, "earlierNote": []}'
  ]) {
    const { session } = desk(true, undefined, {
      read: () => text,
      write: () => undefined
    });
    assert.equal(session.draft.preview, null);
    assert.equal(session.draft.earlierNote, '');
  }
});

test('a notebook whose kernel another one has talks with nobody, and says so', () => {
  const { session } = desk();
  session.connect(null);
  session.elsewhere = true;
  assert.equal(session.phase, 'elsewhere');
});

test('many presses that come to the same are told once, and a stop is sent once', async () => {
  const { link, session, sent } = desk();
  for (let i = 0; i < 5; i++) {
    void session.setSkill('pdf', false);
    void session.stop();
  }
  for (const { id, name } of sent.filter(m => m.kind === 'command')) {
    link.receive({ kind: 'reply', id, status: 'ok', line: name });
  }
  await settled();
  assert.deepEqual(
    session.lines.map(line => line.text),
    ['stop', 'set_skill']
  );
  assert.equal(sent.filter(m => m.name === 'stop').length, 1);
  void session.stop();
  assert.equal(sent.filter(m => m.name === 'stop').length, 2);
});

test('what is pressed while the connection is lost says that it waits', async () => {
  const { link, session, answer } = desk();
  session.offline = true;
  void session.undoCompaction();
  void session.steer('metres');
  assert.deepEqual(
    session.lines.map(line => [line.name, line.text, line.waits]),
    [
      ['undo', 'sent later', true],
      ['steer', 'sent later', true]
    ]
  );
  session.offline = false;
  await answer({ status: 'queued', line: 'heard soon' });
  assert.deepEqual(
    session.lines.map(line => line.text),
    ['sent later', 'heard soon']
  );
  link.lose();
  session.connect(null);
  assert.equal(session.lines.length, 0);
});

test('a question is answered once, unless the answer was not taken', async () => {
  const { link, session, sent, answer } = desk();
  const choices = [{ answer: 'y', label: 'Yes' }];
  const approval = { approval: 'q1', tool: 'python', text: 'May it?', choices };
  link.receive({ kind: 'delta', seq: 1, parts: { approval } });
  const answers = (): number => sent.filter(m => m.name === 'answer').length;
  void session.answer('q1', 'y');
  void session.answer('q1', 'y');
  assert.equal(answers(), 1);
  await answer({ status: 'error', line: 'not an answer' });
  void session.answer('q1', 'y');
  assert.equal(answers(), 2);
  session.connect(null);
  session.connect(link); // the names of another kernel's questions begin anew
  void session.answer('q1', 'y');
  assert.equal(answers(), 3);
});

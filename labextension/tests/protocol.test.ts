import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  CATEGORIES,
  command,
  hello,
  merged,
  pong,
  readCompaction,
  readLines,
  readMessage,
  readSearch,
  readSkills,
  readTurns,
  StateReader,
  type JsonObject
} from '../src/protocol.js';
import { bundle, list, obj } from './bundles.js';

const EXCHANGES = list(bundle('commands').exchanges);

function resultOf(name: string, of?: string): JsonObject {
  const found = EXCHANGES.find(
    ({ command, reply }) =>
      obj(command).name === name &&
      (of === undefined || obj(command).of === of) &&
      obj(reply).result !== null
  );
  return obj(obj(found?.reply).result);
}

test('deltas are merged as the kernel merges them', () => {
  const { start, messages, end } = bundle('deltas');
  let parts = obj(start);
  for (const message of list(messages)) {
    parts = merged(parts, obj(message.parts));
  }
  assert.deepEqual(parts, end);
});

test('a merge changes neither side, and keeps what did not change', () => {
  const parts = { a: { b: 1, c: [1] }, d: { e: 2 } };
  const after = merged(parts, { a: { b: 2 } });
  assert.deepEqual(parts, { a: { b: 1, c: [1] }, d: { e: 2 } });
  assert.deepEqual(after, { a: { b: 2, c: [1] }, d: { e: 2 } });
  assert.equal(after.d, parts.d);
});

test('a state is read whole, with the units of the wire', () => {
  const wire = obj(bundle('state').parts);
  const state = new StateReader().read(wire);
  const gauge = obj(wire.gauge);
  assert.equal(state.gauge.usedTokens, gauge.used_tokens);
  assert.equal(state.gauge.cacheHitRate, gauge.cache_hit_rate);
  const sum = state.gauge.categories.reduce(
    (total, [, size]) => total + size,
    0
  );
  assert.equal(sum, state.gauge.usedTokens);
  assert.equal(state.tree.leaf, obj(wire.tree).leaf);
  assert.equal(state.compaction.lost, null);
});

test('the empty state of the kernel is the empty state of the panel', () => {
  const empty = obj(bundle('state').empty);
  assert.deepEqual(new StateReader().read(empty), new StateReader().read({}));
});

test('a part that did not change is the same value, so that it is not drawn again', () => {
  const reader = new StateReader();
  const parts = obj(bundle('state').parts);
  const before = reader.read(parts);
  const after = reader.read(merged(parts, { turn: { step: 3 } }));
  assert.equal(after.gauge, before.gauge);
  assert.notEqual(after.turn, before.turn);
});

test('what is missing, odd or unknown is passed over', () => {
  const odd = {
    gauge: { used_tokens: 'many', categories: [1], cost_usd: null },
    agents: { total: 1, rows: [7, null, { agent: 'sa1', status: 'running' }] },
    surprise: { a: 1 }
  };
  const state = new StateReader().read(odd);
  assert.equal(state.gauge.usedTokens, 0);
  assert.deepEqual(state.gauge.categories, []);
  assert.deepEqual(
    state.agents.rows.map(row => row.agent),
    ['sa1']
  );
  for (const message of [null, 7, 'x', [], {}, { kind: 'later' }]) {
    assert.equal(readMessage(message).kind, 'unknown');
  }
});

test('every message of the kernel in the bundles is known', () => {
  const messages = [
    ...list(bundle('opening').exchange),
    ...list(bundle('approval').messages)
  ]
    .filter(message => message.from === 'kernel')
    .map(message => message.data);
  const replies = EXCHANGES.map(exchange => exchange.reply);
  for (const message of [...messages, ...replies]) {
    assert.equal(readMessage(message).kind, obj(message).kind);
  }
});

test('what the panel sends is what the bundles say', () => {
  const front = list(bundle('opening').exchange)
    .filter(message => message.from === 'front')
    .map(message => message.data);
  assert.deepEqual(hello('jupyterlab 0.1.0', 'work/analysis.ipynb'), front[0]);
  assert.deepEqual(pong('t1', true), front[1]);
  for (const exchange of EXCHANGES) {
    const { id, name, ...fields } = obj(exchange.command);
    assert.deepEqual(
      command(id as string, name as string, fields),
      exchange.command
    );
  }
});

test('results are read', () => {
  const compaction = readCompaction(resultOf('preview_compaction'));
  assert.equal(compaction.beforeTokens, 49010);
  assert.equal(compaction.note, '## Goal\nClean the table.\n');
  assert.deepEqual(compaction.rows[1], { kind: 'path', text: 'data/raw.csv' });
  const hit = readSearch(resultOf('search')).rows[0];
  assert.equal(hit?.relative, '.nbagent/memory/2026-03-02.md');
  assert.equal(hit?.startLine, 4);
  const skills = readSkills(resultOf('page', 'catalog'));
  assert.equal(
    skills.rows.length,
    list(resultOf('page', 'catalog').rows).length
  );
  assert.equal(typeof skills.rows[0]?.on, 'boolean');
  const turns = readTurns(resultOf('page', 'tree'));
  assert.ok(turns.rows.some(row => row.leaf));
  assert.ok(readTurns(resultOf('cells')).rows[0]?.cell);
  assert.ok(readLines(resultOf('read')).text);
});

test('the categories are those of the kernel, in its order', () => {
  const gauge = obj(obj(bundle('state').parts).gauge);
  assert.deepEqual(Object.keys(obj(gauge.categories)), CATEGORIES);
});

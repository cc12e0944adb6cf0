import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TranslationBundle } from '@jupyterlab/translation';
import { createElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Panel } from '../src/components/Panel.js';
import { branchDepths } from '../src/components/Turns.js';
import { dollars, percent, tokens } from '../src/format.js';
import { readTurns, type JsonObject } from '../src/protocol.js';
import type { AgentSession } from '../src/session.js';
import { bundle, list, obj } from './bundles.js';
import { desk, settled } from './desk.js';

function fill(text: string, args: unknown[]): string {
  return text.replace(/%(\d)/g, (_, n: string) => String(args[Number(n) - 1]));
}

const TRANS = {
  __: (text: string, ...args: unknown[]) => fill(text, args),
  _n: (one: string, many: string, n: number, ...args: unknown[]) =>
    fill(n === 1 ? one : many, [n, ...args])
} as unknown as TranslationBundle;

function drawn(
  session: AgentSession,
  notebook: string | null = 'a.ipynb',
  trans = TRANS
): string {
  return renderToStaticMarkup(
    createElement(Panel, {
      session,
      notebook,
      trans,
      host: { openHit: () => undefined, showCell: () => undefined },
      open: {
        context: true,
        compaction: true,
        turns: true,
        skills: true,
        memory: true,
        agents: true
      },
      onToggle: () => undefined
    })
  );
}

test('without a notebook, without nbagent, and before an answer a line says so', () => {
  const waiting = desk(false);
  assert.match(drawn(waiting.session, null), /No notebook is open/);
  assert.match(drawn(waiting.session), /Waiting for the kernel/);
  assert.match(drawn(waiting.session), />Stop the running cell</);
  waiting.session.connect(null);
  assert.match(drawn(waiting.session), /Run a cell with %load_ext nbagent/);
});

test('every word that is no data comes from the translator', () => {
  const silent = {
    __: () => '',
    _n: () => ''
  } as unknown as TranslationBundle;
  const empty = obj(bundle('state').empty);
  const busy: JsonObject = {
    turn: { status: 'running', number: 5, step: 1 },
    approval: { approval: '7', more_chars: 3, choices: [] },
    agents: { total: 9, rows: [{ agent: '1', status: 'running' }] },
    queue: { total: 9, rows: [] },
    compaction: { entry: '1', lost: 2 },
    tree: { total: 3, stale: 1 },
    catalog: { problems: 2 }
  };
  const { session, link } = desk(false);
  const bare = (): string[] => {
    const markup = drawn(session, '1', silent);
    const named = markup.matchAll(
      /(?:aria-label|title|placeholder)="([^"]*)"/g
    );
    const texts = markup
      .replace(/<option[^]*?<\/option>/g, '')
      .split(/<[^>]*>/);
    return [...texts, ...[...named].map(found => found[1] ?? '')].filter(text =>
      /\p{L}/u.test(text)
    );
  };
  assert.deepEqual(bare(), []);
  link.receive({ kind: 'snapshot', version: 1, seq: 0, parts: empty });
  assert.deepEqual(bare(), []);
  link.receive({ kind: 'delta', seq: 1, parts: busy });
  assert.deepEqual(bare(), []);
  session.connect(null);
  assert.deepEqual(bare(), []);
});

test('the gauge is a meter with a name and a value', () => {
  const markup = drawn(desk().session);
  assert.match(markup, /role="meter" aria-label="Context used"/);
  assert.match(markup, /aria-valuenow="48210"/);
  assert.match(markup, /48,210 of 200,000 tokens, 24 %/);
});

test('names of the bundle for hostile texts stay text', async () => {
  const { session, link, sent } = desk();
  const { parts, catalog, tree, search } = bundle('hostile');
  link.receive({ kind: 'snapshot', version: 1, seq: 0, parts });
  const answer = async (result: JsonObject): Promise<void> => {
    const id = sent.at(-1)?.id;
    link.receive({ kind: 'reply', id, status: 'ok', line: '<b>', result });
    await settled();
  };
  void session.catalog.want();
  await answer(obj(catalog));
  void session.tree.want();
  await answer(obj(tree));
  void session.search('x');
  await answer(obj(search));
  const markup = drawn(session);
  assert.match(markup, /&lt;img src=x/);
  assert.doesNotMatch(markup, /<(img|script|svg|b)[ >]/);
  assert.doesNotMatch(markup, /href=/);
});

test('a turn that runs can be stopped and told something', () => {
  const { session, link } = desk();
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { turn: { status: 'running', number: 5, activity: 'writing' } }
  });
  const markup = drawn(session);
  assert.match(markup, /Turn 5/);
  assert.match(markup, />Stop</);
  assert.match(markup, /aria-label="Tell the agent something"/);
  assert.match(markup, /listens between cells only/);
});

test('a sub-agent says what it does; one that ended takes no word', () => {
  const { session, link } = desk();
  const told = list(bundle('deltas').messages).filter(
    message => 'agents' in obj(message.parts)
  );
  assert.match(drawn(session), /No sub-agent has run/);
  const show = (seq: number, parts: JsonObject): string => {
    link.receive({ kind: 'delta', seq, parts });
    return drawn(session);
  };
  const running = show(1, obj(told[0]?.parts));
  assert.match(running, /aria-label="Stop look-at-logs"/);
  assert.match(running, /aria-label="Tell look-at-logs something"/);
  assert.match(running, /python rows = read\(log\)/);
  assert.match(running, /3 calls · 12,300 tokens · \$0.01/);
  const ended = show(2, obj(told[1]?.parts));
  assert.match(ended, />done</);
  assert.doesNotMatch(ended, /Tell look-at-logs something/);
});

test('turns say in words whether they are stale, forked, or where one is', async () => {
  const { session, answer } = desk();
  const page = list(bundle('commands').exchanges).find(
    e => obj(e.command).name === 'page' && obj(e.command).of === 'tree'
  );
  const result = obj(obj(page?.reply).result);
  void session.tree.want();
  await answer({ result });
  const markup = drawn(session);
  const rows = readTurns(result).rows;
  assert.equal(
    markup.split('>stale<').length - 1,
    rows.filter(row => row.stale).length
  );
  assert.equal(
    markup.split('aria-current="step"').length - 1,
    rows.filter(row => row.leaf).length
  );
});

test('a branch that was left is indented', () => {
  const row = (turn: string, parent: string, aside = false): JsonObject => ({
    turn,
    parent,
    forked: aside,
    current: !aside
  });
  const { rows } = readTurns({
    rows: [row('a', ''), row('b', 'a', true), row('c', 'b'), row('d', 'a')]
  });
  assert.deepEqual(
    [...branchDepths(rows)],
    [
      ['a', 0],
      ['b', 1],
      ['c', 1],
      ['d', 0]
    ]
  );
});

test('figures are short', () => {
  assert.equal(tokens(49010), '49,010');
  assert.equal(percent(1, 200000), 1);
  assert.equal(percent(5, 0), 0);
  assert.equal(dollars(0.00123), '$0.0012');
  assert.equal(dollars(0), '$0.00');
  assert.equal(dollars(1.239), '$1.24');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TranslationBundle } from '@jupyterlab/translation';
import { createElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Panel } from '../src/components/Panel.js';
import { branchDepths } from '../src/components/Turns.js';
import { isAgentCell } from '../src/marks.js';
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
      host: { openHit: () => undefined, showCell: () => false },
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

test('of a context that does not fit, the bar shows parts and mark to one scale', () => {
  const { session, link } = desk(false);
  const parts = structuredClone(obj(bundle('state').parts));
  Object.assign(obj(parts.gauge), {
    used_tokens: 40_000,
    window_tokens: 10_000,
    threshold_tokens: 8_000,
    categories: { messages: 30_000, tools: 10_000 }
  });
  link.receive({ kind: 'snapshot', version: 1, seq: 0, parts });
  const markup = drawn(session);
  const styled = markup.matchAll(
    /nbagent-Bar-[a-z]+" style="(?:width|left):(\d+)%/g
  );
  assert.deepEqual(
    [...styled].map(found => found[1]),
    ['25', '75', '20']
  );
  assert.match(markup, /aria-valuemax="10000" aria-valuenow="10000"/);
  assert.match(markup, /40,000 of 10,000 tokens, 400 %/);
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
  void session.memory.search('x');
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

test('turns of the same number are told apart by their names, and compacted ones by a word', async () => {
  const { session, answer } = desk();
  const page = list(bundle('commands').exchanges).find(
    e => obj(e.command).name === 'page' && obj(e.command).of === 'tree'
  );
  void session.tree.want();
  await answer({ result: obj(obj(page?.reply).result) });
  const markup = drawn(session);
  for (const row of session.tree.rows) {
    assert.ok(markup.includes(`>${row.turn}</code>`));
    assert.ok(
      markup.includes(`"Go back to turn ${row.number} · ${row.turn}: `)
    );
  }
  assert.equal(
    markup.split('>compacted<').length - 1,
    session.tree.rows.filter(row => row.compacted).length
  );
  assert.match(markup, /6 turns, 4 on this branch/);
});

test('Compact is not offered where the kernel would refuse it, and says why', () => {
  const { link, session } = desk();
  assert.match(drawn(session), /aria-disabled="false"[^>]*>Compact …</);
  const refused = [{ name: 'preview_compaction', line: 'A recording plays.' }];
  link.receive({ kind: 'delta', seq: 1, parts: { session: { refused } } });
  const markup = drawn(session);
  assert.match(
    markup,
    /aria-disabled="true" aria-describedby="nbagent-compact-refused" title="A recording plays."/
  );
  assert.match(markup, /id="nbagent-compact-refused"[^>]*>A recording plays.</);
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
  assert.equal(dollars(0), '$0.0000');
  assert.equal(dollars(1.239), '$1.2390');
  assert.equal(dollars(1234.567), '$1,234.57');
});

test('a cell is one of the agent by its first line that is not empty', () => {
  for (const source of [
    '%%agent',
    '\n  \n%%agent -q\nhow many?',
    '%%agent\n'
  ]) {
    assert.equal(isAgentCell(source), true, source);
  }
  for (const source of [
    '',
    '# %%agent',
    ' %%agent',
    '%%agents',
    'x\n%%agent'
  ]) {
    assert.equal(isAgentCell(source), false, source);
  }
});

test('a category has its colour and its place, whatever came first on the wire', () => {
  const { session, link } = desk();
  const colours = (): Record<string, string> =>
    Object.fromEntries(
      [
        ...drawn(session).matchAll(
          /background:hsl\((\d+)[^>]*><\/span>([a-z ]+)</g
        )
      ].map(([, colour, name]) => [name ?? '', colour ?? ''])
    );
  const before = colours();
  const parts = structuredClone(obj(bundle('state').parts));
  obj(parts.gauge).categories = { messages: 5, 'tool results': 4, system: 3 };
  link.receive({ kind: 'snapshot', version: 1, seq: 0, parts });
  const after = colours();
  assert.deepEqual(Object.keys(after), ['system', 'messages', 'tool results']);
  for (const [name, colour] of Object.entries(after)) {
    assert.equal(colour, before[name], name);
  }
});

test('the policy is chosen from a list, also one that is not in it', () => {
  const { session, link } = desk();
  const options = (): string[] =>
    [
      ...(/Policy.*?<\/select>/.exec(drawn(session))?.[0] ?? '').matchAll(
        /value="([^"]+)"/g
      )
    ].map(found => found[1] ?? '');
  assert.deepEqual(options(), ['nbagent', 'openclaw', 'claude-code']);
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { gauge: { policy: 'nbagent@seed' } }
  });
  assert.equal(options()[0], 'nbagent@seed');
  link.receive({ kind: 'delta', seq: 2, parts: { gauge: { policies: null } } });
  assert.deepEqual(options(), ['nbagent@seed']);
});

test('a preview that the conversation has left behind cannot be applied', async () => {
  const { session, link, answer } = desk();
  const preview = list(bundle('commands').exchanges)[0];
  void session.previewCompaction();
  await answer({ result: obj(preview?.reply).result ?? null });
  const apply = (): string =>
    /<button[^>]*>Apply</.exec(drawn(session))?.[0] ?? '';
  assert.match(drawn(session), /with the note as the model wrote it/);
  assert.doesNotMatch(apply(), /disabled/);
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { turn: { status: 'running' } }
  });
  assert.match(apply(), /disabled/);
  link.receive({
    kind: 'delta',
    seq: 2,
    parts: { turn: { status: 'idle' }, tree: { leaf: 'another' } }
  });
  assert.match(apply(), /disabled/);
  assert.match(drawn(session), /Out of date: the conversation has moved since/);
  void session.previewCompaction();
  assert.match(apply(), /disabled/);
  await answer({ result: obj(preview?.reply).result ?? null });
  assert.doesNotMatch(apply(), /disabled/);
});

test('while a question waits, the turn waits for the person', () => {
  const { session, link } = desk();
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: {
      turn: { status: 'running', activity: 'waiting for the model' },
      approval: { approval: 'q1', tool: 'python', text: 'x = 1' }
    }
  });
  assert.match(drawn(session), /waiting for your answer/);
  assert.doesNotMatch(drawn(session), /waiting for the model/);
});

test('a kernel that ended in mid-turn: the turn was broken off, the conversation is kept', () => {
  const { session, link } = desk();
  link.receive({
    kind: 'delta',
    seq: 1,
    parts: { turn: { status: 'running', number: 5 } }
  });
  link.lose();
  session.connect(null);
  assert.match(drawn(session), /while turn 5 ran/);
  assert.match(drawn(session), /%load_ext nbagent, then %agent resume/);
  session.connect(desk().link);
  session.connect(null);
  assert.doesNotMatch(drawn(session), /broken off/);
});

test('the queue and the sources of skills are said in words', async () => {
  const { session, link, answer } = desk();
  const rows = [
    { id: '1', name: 'preview_compaction' },
    { id: '2', name: 'set' }
  ];
  link.receive({ kind: 'delta', seq: 1, parts: { queue: { total: 2, rows } } });
  const skill = { name: 'a', source: 'managed', reason: 'a.b = false' };
  void session.catalog.want();
  await answer({ result: { revision: 1, total: 1, rows: [skill] } });
  const markup = drawn(session);
  assert.match(markup, /Write the hand-off note, Change permissions or policy/);
  assert.match(markup, />hidden from the model<.*your own · switched off/);
  assert.doesNotMatch(markup, /managed|a\.b = false|preview compaction/);
});

test('the button of where one is keeps the focus', async () => {
  const { session, answer } = desk();
  void session.tree.want();
  const rows = [{ turn: 't1', number: 1, leaf: true, prompt: 'p' }];
  await answer({ result: { revision: 7, total: 1, rows } });
  const button = /<button[^>]*Go back to turn 1[^>]*>/.exec(drawn(session));
  assert.match(button?.[0] ?? '', /aria-disabled="true"/);
  assert.doesNotMatch(button?.[0] ?? '', / disabled/);
});

test('the reason of a compaction is part of its sentence', () => {
  const { session, link } = desk();
  const compaction = {
    entry: 'e',
    reason: 'asked for',
    before_tokens: 900,
    after_tokens: 300
  };
  link.receive({ kind: 'delta', seq: 1, parts: { compaction } });
  assert.match(drawn(session), /In force: 900 → 300 tokens \(asked for\)\./);
});

test('a line names its command once', async () => {
  const { session, answer } = desk();
  void session.memory.search('x');
  await answer({ status: 'error', line: 'search: query is too long' });
  assert.match(
    drawn(session),
    /<strong>Search memory: <\/strong>query is too long</
  );
});

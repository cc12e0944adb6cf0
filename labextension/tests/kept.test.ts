import assert from 'node:assert/strict';
import { test } from 'node:test';

import { keptText, KeptComms, type Shelf } from '../src/kept.js';

function shelf(): Shelf {
  const texts = new Map<string, string>();
  return {
    getItem: key => texts.get(key) ?? null,
    setItem: (key, text) => void texts.set(key, text),
    removeItem: key => void texts.delete(key)
  };
}

test('the comm of a kernel is known until it is gone; the oldest are forgotten', () => {
  const here = shelf();
  const comms = new KeptComms(() => here);
  comms.keep('k1', 'c1');
  comms.keep('k2', 'c2');
  comms.keep('k1', 'c3');
  assert.equal(new KeptComms(() => here).of('k1'), 'c3');
  comms.keep('k1', null);
  assert.equal(comms.of('k1'), undefined);
  for (let i = 0; i < 100; i++) {
    comms.keep(`kernel ${i}`, 'c');
  }
  assert.equal(comms.of('k2'), undefined);
  assert.equal(comms.of('kernel 99'), 'c');
});

test('a browser that keeps nothing, and what another version wrote, do no harm', () => {
  const refuses = (): Shelf => {
    throw new Error('storage is switched off');
  };
  const text = keptText(refuses, () => 'note');
  text.write('x');
  text.write(null);
  assert.equal(text.read(), null);
  const here = shelf();
  for (const written of ['{', '{"a": 1}', '[["k1"], 7, ["k1", 2]]']) {
    here.setItem('nbagent:comms', written);
    const comms = new KeptComms(() => here);
    assert.equal(comms.of('k1'), undefined);
    comms.keep('k1', 'c1');
    assert.equal(comms.of('k1'), 'c1');
  }
});

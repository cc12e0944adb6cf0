import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const HERE = new URL('../../../', import.meta.url);

function text(path: string): string {
  return readFileSync(new URL(path, HERE), 'utf-8');
}

test('the panel tells the version of its package', () => {
  const { version } = JSON.parse(text('package.json')) as { version: string };
  assert.match(
    text('src/index.ts'),
    new RegExp(`PANEL_VERSION = '${version}'`)
  );
});

test('every shortcut is of a command that exists', () => {
  const schema = JSON.parse(text('schema/panel.json')) as {
    'jupyter.lab.shortcuts': { command: string; keys: string[] }[];
  };
  const shortcuts = schema['jupyter.lab.shortcuts'];
  const commands = text('src/commands.ts');
  for (const { command } of shortcuts) {
    assert.ok(commands.includes(`'${command}'`), command);
  }
  const keys = shortcuts.map(shortcut => shortcut.keys.join(' '));
  assert.equal(new Set(keys).size, keys.length);
});

test('colours are variables of the theme', () => {
  const css = text('style/index.css');
  assert.deepEqual(css.match(/#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(/gi), null);
});

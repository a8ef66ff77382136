import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { launch } from './launch.ts';

const MADE_OF = ['app/dist/.tsbuildinfo', 'lib/dist/.tsbuildinfo'];

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'isthmus-launch-'));
  mkdirSync(join(root, 'app/dist/bundle/0b5e'), { recursive: true });
  mkdirSync(join(root, 'lib/dist'), { recursive: true });
  for (const file of MADE_OF) writeFileSync(join(root, file), '{}');
  writeFileSync(join(root, 'app/package.json'), '{"type":"module"}');
  writeFileSync(join(root, 'app/dist/main.js'), program('modules'));
  writeFileSync(join(root, 'app/dist/bundle/0b5e/main.js'), program('bundle'));
  const madeOf = MADE_OF.map((file) => {
    const { mtimeMs, size } = statSync(join(root, file));
    return [`../../../${file}`, { mtimeMs, size }];
  });
  setCurrent({ directory: '0b5e', madeOf: Object.fromEntries(madeOf) });
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

function setCurrent(current: object): void {
  writeFileSync(join(root, 'app/dist/bundle/current.json'), JSON.stringify(current));
}

function program(name: string): string {
  return `globalThis.launched = '${name}';`;
}

async function launched(): Promise<unknown> {
  await launch(pathToFileURL(join(root, 'app/dist/')));
  return (globalThis as { launched?: unknown }).launched;
}

test('a program is loaded from its bundle', async () => {
  assert.equal(await launched(), 'bundle');
});

test('a program without a bundle is loaded from its modules', async () => {
  rmSync(join(root, 'app/dist/bundle'), { recursive: true });
  assert.equal(await launched(), 'modules');
});

for (const file of MADE_OF) {
  test(`a bundle is outdated if ${file} was written after it`, async () => {
    utimesSync(join(root, file), 1, 1);
    assert.equal(await launched(), 'modules');
  });

  test(`a bundle is outdated if ${file} has another size`, async () => {
    const { atime, mtime } = statSync(join(root, file));
    writeFileSync(join(root, file), '{ }');
    utimesSync(join(root, file), atime, mtime);
    assert.equal(await launched(), 'modules');
  });
}

test('a bundle is ignored when one of its packages is no longer built', async () => {
  rmSync(join(root, 'lib/dist/.tsbuildinfo'));
  assert.equal(await launched(), 'modules');
});

test('a bundle is ignored when the whole build was removed', async () => {
  for (const file of MADE_OF) rmSync(join(root, file));
  assert.equal(await launched(), 'modules');
});

test('in an image the bundle is enough', async () => {
  setCurrent({ directory: '0b5e', madeOf: {} });
  for (const file of [...MADE_OF, 'app/dist/main.js']) rmSync(join(root, file));
  assert.equal(await launched(), 'bundle');
});

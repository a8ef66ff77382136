import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { format } from 'node:util';
import { DEADLINE_MS, onDeno, ROOT } from './harness/index.ts';

/** Deno imports no sources of this repository from a module that it had not seen before it started. */
const skip = onDeno && 'examples run on Node';

/** test/src/release runs their examples, from the packages as they are installed. */
const TESTED_ELSEWHERE = ['client', 'wire'];

describe('the README of each package of libs/', () => {
  // The imports of an example resolve as those of a program in this repository do.
  const cache = join(ROOT, 'node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'readme-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  for (const name of readdirSync(join(ROOT, 'libs'))) {
    const readme = () => readFileSync(join(ROOT, 'libs', name, 'README.md'), 'utf8');

    test(`${name}: begins with the package's name`, () => {
      assert.ok(readme().startsWith(`# ${name}\n`));
    });

    if (TESTED_ELSEWHERE.includes(name)) continue;
    test(`${name}: its example prints what the page says`, { skip, timeout: DEADLINE_MS }, async (context) => {
      const [, example, output] = /```js\n([\s\S]*?)```\n\n```text\n([\s\S]*?)```/.exec(readme()) ?? [];
      assert.ok(example, 'an example, and what it prints');
      const file = join(folder, `${name}.mjs`);
      writeFileSync(file, example);
      let printed = '';
      context.mock.method(console, 'log', (...values: unknown[]) => {
        printed += `${format(...values)}\n`;
      });
      await import(pathToFileURL(file).href);
      assert.equal(printed, output);
    });

    test(`${name}: names only what the package exports`, () => {
      const manifest = JSON.parse(readFileSync(join(ROOT, 'libs', name, 'package.json'), 'utf8'));
      const exports = Object.values<string>(manifest.exports)
        .map((path) => readFileSync(join(ROOT, 'libs', name, path), 'utf8'))
        .join('\n');
      const [, table = ''] = /\n\| name \| is \|\n\| --- \| --- \|\n([\s\S]*?)(?:\n\n|$)/.exec(readme()) ?? [];
      const names = [...table.matchAll(/^\| ([^|]+) \|/gm)].flatMap(([, cell = '']) =>
        [...cell.matchAll(/`(\w+)`/g)].map(([, word = '']) => word),
      );
      assert.ok(names.length > 0, 'a table of names');
      assert.deepEqual(
        names.filter((word) => !new RegExp(`^export .*\\b${word}\\b|^ {2}(?:type )?${word},?$`, 'm').test(exports)),
        [],
      );
    });
  }
});

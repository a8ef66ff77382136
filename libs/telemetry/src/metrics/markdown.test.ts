import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { headOf, metricsMarkdown, programPages } from './markdown.ts';

const page = readFileSync(new URL('../../../../docs/METRICS.md', import.meta.url), 'utf8');

test('docs/METRICS.md matches what the code generates', () => {
  assert.equal(page.slice(page.indexOf('## ')), metricsMarkdown(), 'run npm run generate');
});

test('docs/METRICS.md has every family of every program, with its type and labels', () => {
  const lines = page.split('\n');
  for (const { letter, declared } of programPages()) {
    assert.ok(declared.length > 20);
    for (const family of declared) {
      const line = lines.find((each) => `${each}:`.includes(` ${headOf(family)}:`));
      assert.ok(line?.split(' ')[1]?.includes(letter), family.name);
    }
  }
});

test('no family has an agent or a destination as a label', () => {
  for (const { declared } of programPages()) {
    for (const { name, labels } of declared) {
      for (const label of labels) assert.doesNotMatch(label, /agent|dest|host|address|session|caller/, name);
    }
  }
});

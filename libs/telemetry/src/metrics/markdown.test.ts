import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { metricsMarkdown, programPages } from './markdown.ts';

const page = readFileSync(new URL('../../../../docs/METRICS.md', import.meta.url), 'utf8');

test('docs/METRICS.md matches what the code generates', () => {
  assert.equal(page, metricsMarkdown(), 'run npm run generate');
});

test('docs/METRICS.md has every family of every program, with its type and labels', () => {
  for (const { name, declared } of programPages()) {
    assert.ok(page.includes(`\n## ${name}\n`), name);
    for (const family of declared) {
      const labels = family.labels.map((label) => `\`${label}\``).join(', ');
      assert.ok(page.includes(`\n| \`${family.name}\` | ${family.type} | ${labels} | `), family.name);
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

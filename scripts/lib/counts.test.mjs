import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCounts } from './counts.mjs';

const summary = (passed, failed, cancelled, skipped) =>
  `ℹ pass ${passed}\nℹ fail ${failed}\nℹ cancelled ${cancelled}\nℹ skipped ${skipped}\n`;

test('the counts of all runs are summed, and what was cancelled has not passed', () => {
  assert.deepEqual(nodeCounts(`${summary(3, 1, 0, 2)}more\n${summary(1, 0, 1, 0)}`), {
    passed: 4,
    failed: 2,
    skipped: 2,
  });
});

test('tests that ended their process without a count are a failure, and a check without tests is none', (t) => {
  const said = t.mock.method(console, 'log', () => {});
  const output = [
    ` NX   Running targets\n> nx run @isthmus/wire:test\n\n${summary(5, 0, 0, 0)}`,
    '> nx run isthmus:types  [local cache]\n\n',
    `> nx run @isthmus/test:test-compat\n\n${summary(0, 0, 0, 7)}`,
    '> nx run @isthmus/tunnel:test  [local cache]\n\n> node --test\n',
  ].join('\n');
  assert.deepEqual(nodeCounts(output), { passed: 5, failed: 1, skipped: 7 });
  assert.match(said.mock.calls[0]?.arguments[0], /^@isthmus\/tunnel:test: /);
});

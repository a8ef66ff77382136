import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countsIn } from './counts.mjs';

const summary = (passed, failed, cancelled, skipped) =>
  `ℹ pass ${passed}\nℹ fail ${failed}\nℹ cancelled ${cancelled}\nℹ skipped ${skipped}\n`;

test('the counts of all runs are summed, on Deno too, and what was cancelled has not passed', () => {
  const deno = 'ok | 3 passed (4 steps) | 0 failed | 1 ignored (2 s)\nFAILED | 1 passed | 2 failed (1 s)\n';
  assert.deepEqual(countsIn(`${summary(3, 1, 0, 2)}more\n${summary(1, 0, 1, 0)}${deno}`), {
    passed: 8,
    failed: 4,
    skipped: 3,
  });
});

test('so are those of a run of our own', () => {
  assert.deepEqual(countsIn('500 of 900 schedules, 1 failed\n\n12 passed, 1 failed, 3 skipped\n'), {
    passed: 12,
    failed: 1,
    skipped: 3,
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
  assert.deepEqual(countsIn(output), { passed: 5, failed: 1, skipped: 7 });
  assert.match(said.mock.calls[0]?.arguments[0], /^@isthmus\/tunnel:test: /);
});

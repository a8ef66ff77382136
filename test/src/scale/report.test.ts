import assert from 'node:assert/strict';
import test from 'node:test';
import { check, timedCheck } from './findings.ts';
import { print } from './report.ts';

const SLOW = timedCheck('all sessions are back within 15 s', false, '16 s');
const LOST = check('no dial fails', false, 'reset');

function printed(checks: readonly (typeof LOST)[], short: boolean): { held: boolean; text: string } {
  let text = '';
  const held = print([{ tables: [], checks }], short, (part) => {
    text += part;
  });
  return { held, text };
}

test('a whole run judges times, a short run only counts', () => {
  assert.deepEqual(printed([check('every session is known', true, 600), SLOW], false), {
    held: false,
    text: '\nFAILED all sessions are back within 15 s: 16 s\n1 passed, 1 failed\n',
  });
  assert.deepEqual(printed([check('every session is known', true, 600), SLOW], true), {
    held: true,
    text: '\n1 passed, 0 failed\n',
  });
  assert.equal(printed([LOST], true).held, false);
});

test('a run that checked nothing does not hold', () => {
  assert.equal(printed([SLOW], true).held, false);
});

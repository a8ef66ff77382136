import assert from 'node:assert/strict';
import test from 'node:test';
import { check, timedCheck } from './findings.ts';
import { print } from './report.ts';

const SLOW = timedCheck('all sessions are back within 15 s', false, '16 s');
const LOST = check('no dial fails', false, 'reset');

function printed(checks: readonly (typeof LOST)[], short: boolean) {
  let text = '';
  const [passed, failed] = print([{ tables: [], checks }], short, (part) => {
    text += part;
  });
  return { passed, failed, text };
}

test('a whole run judges times, a short run only counts', () => {
  assert.deepEqual(printed([check('every session is known', true, 600), SLOW], false), {
    ...{ passed: 1, failed: 1 },
    text: '\nFAILED all sessions are back within 15 s: 16 s\n',
  });
  assert.deepEqual(printed([check('every session is known', true, 600), SLOW], true), {
    ...{ passed: 1, failed: 0 },
    text: '\n',
  });
  assert.equal(printed([LOST], true).failed, 1);
  assert.equal(printed([SLOW], true).passed, 0);
});

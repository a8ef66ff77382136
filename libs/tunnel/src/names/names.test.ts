import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkName, isName } from './names.ts';

test('ordinary names are accepted', () => {
  for (const name of ['', 'a1', 'node 7', 'ip-10-0-0-1.ec2.internal', '工場', 'x'.repeat(264)]) {
    assert.equal(checkName('agent id', name), name);
  }
});

for (const [what, character] of [
  ['NUL', '\0'],
  ['a line’s end', '\n'],
  ['ESC', '\x1b'],
  ['DEL', '\x7f'],
  ['a C1 control', '\x9b'],
  ['a line separator', '\u2028'],
  ['a right-to-left override', '\u202e'],
]) {
  test(`a name with ${what} is rejected with an error that does not contain the name`, () => {
    const name = `agent${character}2`;
    assert.equal(isName(name), false);
    assert.throws(() => checkName('agent id', name), { message: /^agent id with control characters: [ -~]+$/ });
  });
}

test('a name that is too long is rejected with an error that has its length', () => {
  assert.throws(() => checkName('tenant', 'x'.repeat(265)), /tenant of 265 characters: at most 264/);
});

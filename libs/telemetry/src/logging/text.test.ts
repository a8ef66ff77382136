import assert from 'node:assert/strict';
import { test } from 'node:test';
import { textLine } from './text.ts';

const HEAD = '"level":"info","time":"2026-11-21T10:00:00.000Z","name":"gateway"';

function lineOf(fields: string, msg = 'dial established'): string {
  return textLine(`{${HEAD},${fields}"msg":"${msg}"}\n`);
}

const START = '2026-11-21T10:00:00.000Z info  gateway  dial established';

test('a line starts with its time, level, name and message', () => {
  assert.equal(lineOf(''), `${START}\n`);
});

test('words, numbers and literals are shown as they are, and texts in quotes', () => {
  const fields =
    '"destination":"10.0.0.1:443","ms":3.2,"up":0,"drop":-1e-7,"ok":true,"none":null,"text":"a, b: {c}","empty":"",';
  const shown = 'destination=10.0.0.1:443 ms=3.2 up=0 drop=-1e-7 ok=true none=null text="a, b: {c}" empty=""';
  assert.equal(lineOf(fields), `${START} ${shown}\n`);
});

test('a value with an equals sign is in quotes', () => {
  assert.equal(lineOf('"where":"a=b",'), `${START} where="a=b"\n`);
});

for (const [what, field, shown] of [
  ['a nested value', '"names":["a","b"],"after":1,', 'names=["a","b"] after=1'],
  ['an escaped value', '"text":"say \\"no\\"",', 'text="say \\"no\\""'],
  ['a control character', '"text":"\\u001b[31mred",', 'text="\\u001b[31mred"'],
  ['letters of other scripts', '"name2":"жук","text":"ж у",', 'name2=жук text="\\u0436 \\u0443"'],
] as const) {
  test(`${what} is shown`, () => {
    const expected = `${START} ${shown}\n`.replace('\\u0436 \\u0443', 'ж у');
    assert.equal(lineOf(field), expected);
  });
}

test('an error is its message, and its stack follows the line', () => {
  const line = textLine(
    `{"level":"error","time":"t","name":"hub","err":{"message":"broken","stack":"Error: broken\\n at x"},"msg":"fault"}\n`,
  );
  assert.equal(line, 't error hub  fault err=broken\n   at x\n');
});

test('a value that looks like the end of the line is no end', () => {
  assert.equal(lineOf('"text":"}",'), `${START} text=}\n`);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { age, bytes, millis } from '@isthmus/findings';
import { shellWord, shown } from './text.ts';

test('a long name is cut, and its length said', () => {
  assert.equal(shown('x'.repeat(64)), 'x'.repeat(64));
  assert.equal(shown('x'.repeat(10_240)), `${'x'.repeat(64)}… (10,240 characters)`);
});

test('what cannot be seen is shown: controls, marks of direction, joiners', () => {
  assert.equal(shown('a\u202eb\u0000c\n\u200d\u{e0041}'), 'a\\u{202e}b\\u{0}c\\u{a}\\u{200d}\\u{e0041}');
  assert.equal(shown('Größe → Ω 中文'), 'Größe → Ω 中文');
});

test('a word for a shell is quoted, or nothing if a terminal would act on it', () => {
  const rows: readonly [string, string | undefined][] = [
    ['10.0.0.1:443', '10.0.0.1:443'],
    ['[fd00::1]:443', "'[fd00::1]:443'"],
    ["a'b; rm -rf $HOME", "'a'\\''b; rm -rf $HOME'"],
    ['', "''"],
    ['a\u001b[2J', undefined],
    ['a\nb', undefined],
    ['x'.repeat(513), undefined],
  ];
  for (const [text, word] of rows) assert.equal(shellWord(text), word, text);
});

test('numbers are short', () => {
  assert.deepEqual(
    [millis(undefined), millis(1.23), millis(1234), millis(12_345)],
    ['–', '1.2 ms', '1,234 ms', '12.3 s'],
  );
  assert.deepEqual([bytes(999), bytes(1500), bytes(2e12)], ['999 B', '1.5 kB', '2.0 TB']);
  assert.deepEqual(
    [age(-1), age(61_000), age(3_600_000 * 25), age(86_400_000 * 3)],
    ['0 s', '1 min 1 s', '25 h 0 min', '3 d 0 h'],
  );
});

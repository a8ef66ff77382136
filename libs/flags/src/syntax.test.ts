import assert from 'node:assert/strict';
import { test } from 'node:test';
import { costsItsLength } from '@isthmus/runtime/testing';
import {
  readBool,
  readCsv,
  readDuration,
  readFloat32,
  readInt32,
  readInteger,
  readUnsigned,
  writeCsv,
  writeDuration,
} from './syntax.ts';

const BAD = Symbol('refused');

/** The value of each text; BAD for a SyntaxError. Verified against Go's answers for the same texts. */
const TABLES = {
  readBool: [
    ['1', true],
    ['t', true],
    ['T', true],
    ['TRUE', true],
    ['true', true],
    ['True', true],
    ['0', false],
    ['f', false],
    ['False', false],
    ['yes', BAD],
    ['tRUE', BAD],
    ['', BAD],
  ],
  readInteger: [
    ['8090', 8090],
    ['-1', -1],
    ['+7', 7],
    ['0', 0],
    ['-0', 0],
    ['0x1F9A', 8090],
    ['0X1f9a', 8090],
    ['-0x10', -16],
    ['0b101', 5],
    ['0o17', 15],
    ['017', 15],
    ['1_000', 1000],
    ['0x_ff', 255],
    ['9007199254740991', 9007199254740991],
    ['9007199254740992', BAD],
    ['99999999999999999999', BAD],
    ['1__0', BAD],
    ['_1', BAD],
    ['1_', BAD],
    ['08', BAD],
    ['0x', BAD],
    ['1.0', BAD],
    ['1e3', BAD],
    [' 1', BAD],
    ['--1', BAD],
    ['abc', BAD],
    ['', BAD],
  ],
  readUnsigned: [
    ['1800', 1800],
    ['0', 0],
    ['0x10', 16],
    ['-1', BAD],
    ['+1', BAD],
  ],
  readInt32: [
    ['4', 4],
    ['-2', -2],
    ['010', 10],
    ['2147483647', 2147483647],
    ['2147483648', BAD],
    ['0x4', BAD],
    ['', BAD],
  ],
  readFloat32: [
    ['0.1', Math.fround(0.1)],
    ['5', 5],
    ['-1', -1],
    ['.5', 0.5],
    ['5.', 5],
    ['1e2', 100],
    ['inf', Number.POSITIVE_INFINITY],
    ['-Infinity', Number.NEGATIVE_INFINITY],
    ['NaN', Number.NaN],
    ['1e39', BAD],
    ['a', BAD],
    ['.', BAD],
    ['', BAD],
  ],
  readDuration: [
    ['1h30m', 5_400_000],
    ['1.5s', 1500],
    ['100ms', 100],
    ['0', 0],
    ['-0', 0],
    ['+0', 0],
    ['0s', 0],
    ['-1s', -1000],
    ['.5s', 500],
    ['1.s', 1000],
    ['2us', 0.002],
    ['2\u00b5s', 0.002],
    ['2\u03bcs', 0.002],
    ['500000ns', 0.5],
    ['1h1m1s1ms', 3_661_001],
    ['1m1h', 3_660_000],
    ['5', BAD],
    ['1.5', BAD],
    ['', BAD],
    ['s', BAD],
    ['.s', BAD],
    ['1 s', BAD],
    ['1d', BAD],
    ['1S', BAD],
    ['1s-1s', BAD],
    ['2562047h', 9_223_369_200_000],
    ['2562048h', BAD],
  ],
  readCsv: [
    ['a', ['a']],
    ['a,b', ['a', 'b']],
    ['a,', ['a', '']],
    [',', ['', '']],
    [' a, b', [' a', ' b']],
    ['"a,b",c', ['a,b', 'c']],
    ['"say ""hi"""', ['say "hi"']],
    ['""', ['']],
    ['"a\nb"', ['a\nb']],
    ['a\nb', ['a']],
    ['[]', ['[]']],
    ['"a', BAD],
    ['a"b', BAD],
    ['"a"b', BAD],
  ],
} as const;
const READERS = { readBool, readInteger, readUnsigned, readInt32, readFloat32, readDuration, readCsv };

for (const [name, rows] of Object.entries(TABLES)) {
  test(`${name} accepts what Go accepts`, () => {
    const read = READERS[name as keyof typeof READERS];
    for (const [text, wanted] of rows) {
      if (wanted === BAD) assert.throws(() => read(text), SyntaxError, JSON.stringify(text));
      else assert.deepEqual(read(text), wanted, JSON.stringify(text));
    }
  });
}

test('what is nearly a number or a duration costs what its length costs', () => {
  for (const text of ['9'.repeat(1_000_000), `${'9000s'.repeat(100_000)}!`, `${'9'.repeat(1_000_000)}!`]) {
    assert.throws(() => costsItsLength(() => readDuration(text)), SyntaxError);
    assert.throws(() => costsItsLength(() => readFloat32(text)), SyntaxError);
  }
});

test('durations are written as Go writes them', () => {
  const rows = [
    [3_600_000, '1h0m0s'],
    [5_400_000, '1h30m0s'],
    [90_000, '1m30s'],
    [1500, '1.5s'],
    [100, '100ms'],
    [0.5, '500\u00b5s'],
    [0.0005, '500ns'],
    [0, '0s'],
    [-1000, '-1s'],
  ] as const;
  for (const [ms, text] of rows) {
    assert.equal(writeDuration(ms), text);
    assert.equal(readDuration(text), ms);
  }
});

test('lists are written so that they read back unchanged', () => {
  const list = ['a', 'b,c', 'say "hi"', ' x', ''];
  assert.deepEqual(readCsv(writeCsv(list)), list);
});

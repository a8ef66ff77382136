import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseOptions } from './options.ts';

test('one server with everything inside is the default', () => {
  assert.deepEqual(parseOptions([]), { split: false });
});

test('--split asks for the tiers apart', () => {
  assert.deepEqual(parseOptions(['--split']), { split: true });
});

test('--help gives the usage, whatever stands beside it', () => {
  assert.equal(parseOptions(['--split', '--help']), undefined);
  assert.equal(parseOptions(['-h']), undefined);
});

test('an unknown argument is one line that names it', () => {
  assert.throws(
    () => parseOptions(['--spilt']),
    /^Error: unknown argument --spilt: npm start takes --split and --help$/,
  );
});

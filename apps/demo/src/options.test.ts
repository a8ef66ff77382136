import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseOptions } from './options.ts';

test('one server with everything inside is the default', () => {
  assert.deepEqual(parseOptions([]), { split: false });
});

test('--split starts separate tiers', () => {
  assert.deepEqual(parseOptions(['--split']), { split: true });
});

test('--help prints the usage, whatever the other arguments', () => {
  assert.equal(parseOptions(['--split', '--help']), undefined);
  assert.equal(parseOptions(['-h']), undefined);
});

test('an unknown argument gives one line that names it', () => {
  assert.throws(
    () => parseOptions(['--spilt']),
    /^Error: unknown argument --spilt: npm start takes --split and --help$/,
  );
});

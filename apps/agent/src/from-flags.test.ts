import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { followedToken } from './from-flags.ts';

test('the token of before stays while its file holds none, and what is wrong is told once', (context) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-token-'));
  context.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, 'token');
  const events = planeEvents();
  const told: string[] = [];
  events.on('certificate:failure', (where, files, error) => told.push(`${where} ${files}: ${error?.message}`));
  const read = followedToken(path, events);
  assert.throws(read, /ENOENT/, 'there was none');
  writeFileSync(path, 'first\n');
  assert.equal(read(), 'first');
  const none = `uplink ${path}: ${path}: a token is one word of 1 to 16384 characters`;
  for (const bad of ['', 'two words', '-----BEGIN CERTIFICATE-----\nMII\n', 'x'.repeat(16_385), '\u0000\u0001']) {
    writeFileSync(path, bad);
    assert.deepEqual([read(), read()], ['first', 'first'], JSON.stringify(bad.slice(0, 20)));
  }
  assert.deepEqual(told.splice(0), [none]);
  rmSync(path);
  assert.equal(read(), 'first');
  writeFileSync(path, 'second');
  assert.equal(read(), 'second');
  assert.match(told.shift() ?? '', /ENOENT.*token/);
  assert.deepEqual(told, [`uplink ${path}: undefined`]);
});

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { stripped } from './elf.mjs';

const LINUX = process.platform === 'linux';

test('a program runs without its symbols', { skip: !LINUX && 'no Linux' }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-elf-'));
  after(() => rmSync(directory, { recursive: true, force: true }));
  const [path, whole] = [join(directory, 'node'), readFileSync(process.execPath)];
  const rest = stripped(whole);
  assert.ok(rest.length < whole.length);
  assert.ok(stripped(rest).equals(rest), 'nothing is left to take away');
  writeFileSync(path, rest, { mode: 0o755 });
  const script =
    "console.log(new Intl.NumberFormat('de').format(1234.5), crypto.createHash('sha1').update('').digest('hex'))";
  const { stdout, stderr } = spawnSync(path, ['-e', script], { encoding: 'utf8', timeout: 60_000 });
  assert.equal(stdout, '1.234,5 da39a3ee5e6b4b0d3255bfef95601890afd80709\n', stderr);
});

test('what is no program of Linux is refused', () => {
  assert.throws(() => stripped(Buffer.from('#!/bin/sh\n')), /no 64-bit/);
});

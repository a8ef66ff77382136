import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readAtMost, readNamedFile, reasonOf } from './files.ts';

describe('a file that a flag or another file names', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-files-'));
  after(() => rmSync(dir, { recursive: true }));
  const file = (name: string, content = '') => {
    writeFileSync(join(dir, name), content);
    return join(dir, name);
  };
  const reason = (path: string, most?: number) => {
    try {
      readNamedFile(path, most);
    } catch (error) {
      assert.ok((error as Error).message.includes(path), (error as Error).message);
      return reasonOf(error);
    }
    throw new Error(`${path} was read`);
  };

  test('is read as a whole, also through the links of a mounted Secret', () => {
    assert.equal(readNamedFile(file('empty')).length, 0);
    mkdirSync(join(dir, '..2026'));
    file('..2026/ca.crt', 'a certificate');
    symlinkSync('..2026', join(dir, '..data'));
    symlinkSync('..data/ca.crt', join(dir, 'ca.crt'));
    assert.equal(String(readNamedFile(join(dir, 'ca.crt'))), 'a certificate');
    // Its size is 0, and it is not empty.
    assert.deepEqual(readNamedFile('/proc/self/cmdline'), readFileSync('/proc/self/cmdline'));
  });

  test('is refused if it might never end: a device, a pipe, a socket', async () => {
    execFileSync('mkfifo', [join(dir, 'pipe')]);
    const server = createServer().listen(join(dir, 'socket'));
    try {
      for (const path of ['/dev/zero', '/dev/null', join(dir, 'pipe'), join(dir, 'socket')])
        assert.equal(reason(path), 'it is not a regular file');
    } finally {
      server.close();
    }
  });

  test('is refused if there is none, if it is a directory, and above its bound', () => {
    assert.equal(reason(join(dir, 'none')), 'there is no such file');
    assert.equal(reason(dir), 'it is a directory');
    assert.equal(String(readNamedFile(file('exact', 'x'.repeat(100)), 100)).length, 100);
    assert.equal(reason(file('large', 'x'.repeat(101)), 100), 'it has 101 bytes: at most 100 are allowed');
    assert.equal(reason(file('larger', 'x'.repeat(1_048_577))), 'it has 1048577 bytes: at most 1048576 are allowed');
    assert.equal(reason('/proc/self/maps', 100), 'it has more than 100 bytes');
  });

  test('is read to its bound where it may be a pipe', () => {
    const zero = openSync('/dev/zero', 'r');
    assert.equal(readAtMost(zero, 1000), undefined);
    const maps = openSync('/proc/self/status', 'r');
    assert.match(String(readAtMost(maps, 100_000)), /^Name:.*VmPeak:/s);
  });
});

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileTarget } from './targets.ts';

describe('targets', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-audit-'));
  after(() => rmSync(dir, { recursive: true }));

  const noFifo = spawnSync('mkfifo', ['--version']).status === 0 ? false : 'there is no mkfifo';

  test('a file is appended to, and a reopen opens the file that has the name by then', async () => {
    const path = join(dir, 'log');
    writeFileSync(path, '0\n');
    const file = fileTarget(path);
    await file.open();
    assert.equal(await file.write(Buffer.from('1\n')), 2);
    renameSync(path, `${path}.1`);
    assert.equal(file.writeSync(Buffer.from('2\n')), 2);
    await file.open();
    await file.write(Buffer.from('3\n'));
    await file.close();
    assert.equal(readFileSync(`${path}.1`, 'utf8'), '0\n1\n2\n');
    assert.equal(readFileSync(path, 'utf8'), '3\n');
    assert.equal(statSync(path).mode & 0o137, 0);
  });

  test('a file that cannot be reopened stays open', async () => {
    const path = join(dir, 'kept');
    const file = fileTarget(path);
    await file.open();
    renameSync(path, `${path}.1`);
    spawnSync('mkdir', [path]);
    await assert.rejects(file.open(), { code: 'EISDIR' });
    await file.write(Buffer.from('1\n'));
    await file.close();
    assert.equal(readFileSync(`${path}.1`, 'utf8'), '1\n');
  });

  test('a pipe that nobody reads blocks nothing', { skip: noFifo }, async () => {
    const path = join(dir, 'pipe');
    spawnSync('mkfifo', [path]);
    await assert.rejects(fileTarget(path).open(), { code: 'ENXIO' });
  });
});

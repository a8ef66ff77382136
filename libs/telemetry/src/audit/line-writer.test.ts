import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { fileTarget, type LineTarget, LineWriter } from './line-writer.ts';

const MEBIBYTE = 1024 * 1024;

/** Successive files under one name. They fail when a test says so. */
class Files implements LineTarget {
  batch = 1024;
  readonly files: string[] = [];
  readonly told: string[] = [];
  failure: string | undefined;
  openFailure: string | undefined;
  /** The number of writes that failed. */
  failures = 0;
  most = Number.POSITIVE_INFINITY;
  /** Bytes left until the disk is full. */
  room = Number.POSITIVE_INFINITY;
  /** Writes wait for this promise. */
  gate: Promise<void> = Promise.resolve();
  closed = false;

  readonly report = {
    failing: (reason: string) => void this.told.push(`failing ${reason}`),
    works: () => void this.told.push('works'),
    kept: (reason: string) => void this.told.push(`kept ${reason}`),
    dropped: (lines: number) => void this.told.push(`dropped ${lines}`),
  };

  async open(): Promise<void> {
    if (this.openFailure) throw coded(this.openFailure);
    this.files.push('');
  }

  async write(bytes: Uint8Array): Promise<number> {
    await this.gate;
    return this.writeSync(bytes);
  }

  writeSync(bytes: Uint8Array): number {
    if (this.failure || this.room === 0) {
      this.failures++;
      throw coded(this.failure ?? 'ENOSPC');
    }
    const taken = bytes.subarray(0, Math.min(this.most, this.room));
    this.room -= taken.length;
    this.files[this.files.length - 1] += Buffer.from(taken).toString();
    return taken.length;
  }

  async close(): Promise<void> {
    this.closed = true;
  }
}

function coded(code: string): Error {
  return Object.assign(new Error(code), { code });
}

test('lines are written in order, many at once, and end() waits for them all', async () => {
  const files = new Files();
  const writer = new LineWriter(files, files.report);
  const lines = Array.from({ length: 1000 }, (_, index) => `line ${index}\n`);
  for (const line of lines) writer.write(line);
  await writer.end();
  assert.deepEqual(files.files, [lines.join('')]);
  assert.deepEqual(files.told, []);
  assert.ok(files.closed);
});

test('a target that accepts part of a batch gets the rest next', async () => {
  const files = new Files();
  files.most = 3;
  const writer = new LineWriter(files, files.report);
  writer.write('hello\n');
  writer.write('world\n');
  await writer.end();
  assert.deepEqual(files.files, ['hello\nworld\n']);
});

for (const failure of ['ENOSPC', 'EIO']) {
  test(`lines wait while writing fails with ${failure}, the failure is reported once, and nothing is lost`, async () => {
    const files = new Files();
    files.failure = failure;
    const writer = new LineWriter(files, files.report);
    writer.write('1\n');
    await until(() => files.told.length > 0, 'a failure');
    writer.write('2\n');
    await until(() => files.failures > 1, 'another failure');
    files.failure = undefined;
    await until(() => files.files[0] === '1\n2\n', 'both lines');
    assert.deepEqual(files.told, [`failing ${failure}`, 'works']);
    await writer.end();
  });
}

test('a slow reader is not a failure', async () => {
  const files = new Files();
  files.failure = 'EAGAIN';
  const writer = new LineWriter(files, files.report);
  writer.write('1\n');
  await until(() => files.failures > 0, 'a reader that takes nothing');
  files.failure = undefined;
  await until(() => files.files[0] === '1\n', 'the line');
  assert.deepEqual(files.told, []);
  await writer.end();
});

test('beyond eight mebibytes lines are dropped, and each drop is reported', async () => {
  const files = new Files();
  let release = () => {};
  files.gate = new Promise((resolve) => {
    release = resolve;
  });
  files.batch = MEBIBYTE;
  const writer = new LineWriter(files, files.report);
  const line = `${'x'.repeat(MEBIBYTE - 1)}\n`;
  for (let i = 0; i < 11; i++) writer.write(line);
  assert.deepEqual(files.told, ['dropped 1', 'dropped 1', 'dropped 1']);
  release();
  await writer.end();
  assert.equal(files.files[0]?.length, 8 * MEBIBYTE);
});

test('recovery from a loss is reported once the waiting lines are written, and a later loss counts as a new one', async () => {
  const files = new Files();
  const writer = new LineWriter(files, files.report);
  const line = `${'x'.repeat(MEBIBYTE - 1)}\n`;
  const overflow = async () => {
    for (let i = 0; i < 9; i++) writer.write(line);
    await until(() => files.told.at(-1) === 'works', 'the end of it');
  };
  await overflow();
  assert.equal(files.files[0]?.length, 8 * MEBIBYTE);
  await overflow();
  assert.deepEqual(files.told, ['dropped 1', 'works', 'dropped 1', 'works']);
  await writer.end();
});

test('after a reopen, later lines go into another file', async () => {
  const files = new Files();
  const writer = new LineWriter(files, files.report);
  writer.write('1\n');
  await until(() => files.files[0] === '1\n', 'the line');
  writer.reopen();
  writer.write('2\n');
  await writer.end();
  assert.deepEqual(files.files, ['1\n', '2\n']);
});

test('a line that a full disk cut short is written in full to the next file', async () => {
  const files = new Files();
  files.room = 9;
  const writer = new LineWriter(files, files.report);
  writer.write('first\n');
  writer.write('second\n');
  await until(() => files.told.length > 0, 'a failure');
  writer.reopen();
  files.room = Number.POSITIVE_INFINITY;
  await writer.end();
  assert.deepEqual(files.files, ['first\nsec', 'second\n']);
});

test('while a file cannot be reopened, lines go to the old one and the reopen is retried', async () => {
  const files = new Files();
  const writer = new LineWriter(files, files.report);
  writer.write('1\n');
  await until(() => files.files[0] === '1\n', 'the line');
  files.openFailure = 'EACCES';
  writer.reopen();
  writer.write('2\n');
  await until(() => files.files[0] === '1\n2\n', 'the second line');
  assert.deepEqual(files.told, ['kept EACCES']);
  files.openFailure = undefined;
  await until(() => {
    writer.write('.\n');
    return files.files.length === 2;
  }, 'another file');
  await writer.end();
});

test('a file that could not be opened at first gets its lines once it can be opened', async () => {
  const files = new Files();
  files.openFailure = 'ENOSPC';
  const writer = new LineWriter(files, files.report);
  writer.write('1\n');
  await until(() => files.told.length > 0, 'a failure');
  files.openFailure = undefined;
  await until(() => files.files[0] === '1\n', 'the line');
  assert.deepEqual(files.told, ['failing ENOSPC', 'works']);
  await writer.end();
});

test('end() is bounded in time, and reports how many lines are lost', async () => {
  const files = new Files();
  files.failure = 'ENOSPC';
  const writer = new LineWriter(files, files.report);
  for (let i = 0; i < 5; i++) writer.write(`${i}\n`);
  await writer.end();
  assert.deepEqual(files.told, ['failing ENOSPC', 'dropped 5']);
  writer.write('late\n');
  assert.deepEqual(files.told.at(-1), 'dropped 1');
});

test('a process that exits writes waiting lines at once', async () => {
  const files = new Files();
  const writer = new LineWriter(files, files.report);
  await until(() => files.files.length === 1, 'the file');
  writer.write('1\n');
  writer.write('2\n');
  writer.endSync();
  assert.deepEqual(files.told, []);
  const left = files.files[0] ?? '';
  assert.ok(left === '2\n' || left === '1\n2\n', left);
});

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

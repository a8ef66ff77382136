import { close, constants, fstatSync, open, write, writeSync } from 'node:fs';
import { PIPE_BUF, withoutWaiting } from '../logging/log-sink.ts';
import type { LineTarget } from './line-writer.ts';

/** The owner writes and the group reads, for a log collector in the group. */
const FILE_MODE = 0o640;

/** Non-blocking, so that a pipe that nobody reads does not block a thread. */
const FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

const STDOUT = 1;

const FILE_BATCH = 256 * 1024;

const onDeno = 'Deno' in globalThis;

/** Returns a target that appends to a file. A reopen opens the file that has the name by then. */
export function fileTarget(path: string): LineTarget {
  let fd: number | undefined;
  return {
    batch: FILE_BATCH,
    async open() {
      const opened = await openFile(path);
      const old = fd;
      fd = opened;
      if (old !== undefined) await closeFile(old);
    },
    write: (bytes) => writeTo(opened(fd), bytes),
    writeSync: (bytes) => writeSync(opened(fd), bytes),
    async close() {
      const last = fd;
      fd = undefined;
      if (last !== undefined) await closeFile(last);
    },
  };
}

/** Returns a target for the process's standard output, whatever kind of file that is. */
export function stdoutTarget(): LineTarget {
  let fd: number | undefined;
  return {
    batch: PIPE_BUF,
    async open() {
      fd ??= withoutWaiting(STDOUT);
    },
    write: (bytes) => writeTo(opened(fd), bytes),
    writeSync: (bytes) => writeSync(opened(fd), bytes),
    async close() {},
  };
}

function opened(fd: number | undefined): number {
  if (fd === undefined) throw new Error('the file is not open');
  return fd;
}

function openFile(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    open(path, FLAGS, FILE_MODE, (error, fd) => (error ? reject(error) : resolve(fd)));
  });
}

function closeFile(fd: number): Promise<void> {
  return new Promise((resolve) => close(fd, () => resolve()));
}

function writeTo(fd: number, bytes: Uint8Array): Promise<number> {
  // When the disk is full, Deno 2.9 does not report how many bytes were written, so compare the file's length.
  const before = onDeno ? fstatSync(fd).size : 0;
  return new Promise((resolve, reject) => {
    write(fd, bytes, 0, bytes.length, null, (error, written) => {
      const taken = onDeno && error ? fstatSync(fd).size - before : 0;
      if (taken > 0 && taken < bytes.length) resolve(taken);
      else if (error) reject(error);
      else resolve(written);
    });
  });
}

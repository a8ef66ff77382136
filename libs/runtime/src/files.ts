import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { RUNTIME } from './defaults.ts';

/** A file that can be opened, and is none to read. */
class UnusableFile extends Error {
  /** The message without the path. */
  readonly reason: string;

  constructor(path: string, reason: string) {
    super(`${path}: ${reason}`);
    this.reason = reason;
  }
}

/**
 * Returns the content of a file that a flag or another file names. Every such file is read here: it must be a regular file, or a link to
 * one, because a pipe or a device might never end, and no larger than `most`.
 * @param most in bytes
 * @throws the file system's error, or one that says why the file is none to read: both name the path, and `reasonOf` does not
 */
export function readNamedFile(path: string, most: number = RUNTIME.namedFileBytes): Buffer {
  // Opening a pipe to read it would wait for its writer.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new UnusableFile(path, stat.isDirectory() ? DIRECTORY : NOT_REGULAR);
    if (stat.size > most) throw new UnusableFile(path, `it has ${stat.size} bytes: at most ${most} are allowed`);
    const content = readAtMost(fd, most, stat.size);
    if (content) return content;
    throw new UnusableFile(path, `it has more than ${most} bytes`);
  } finally {
    closeSync(fd);
  }
}

/** Reads an open file to its end. @returns undefined if it has more than `most` bytes, of which it then reads one */
export function readAtMost(fd: number, most: number, expected = 0): Buffer | undefined {
  let read = Buffer.alloc(Math.min(expected, most) + 1);
  for (let length = 0; ; ) {
    const more = readSync(fd, read, length, read.length - length, null);
    if (more === 0) return read.subarray(0, length);
    length += more;
    if (length > most) return undefined;
    if (length === read.length) read = Buffer.concat([read], Math.min(2 * length, most) + 1);
  }
}

/**
 * Returns what reads something that may turn bad while the program runs, such as a file that is being replaced: what was read last stays in use
 * until it can be read again.
 * @param fault called with each new reason why it cannot be read, and with undefined once it can
 * @throws what `read` throws, as long as nothing was read
 */
export function lastGood<T>(read: () => T, fault: (error: Error | undefined) => void): () => T {
  let last: { readonly value: T } | undefined;
  let reported = '';
  return () => {
    let error: Error | undefined;
    try {
      last = { value: read() };
    } catch (thrown) {
      if (!last) throw thrown;
      error = thrown as Error;
    }
    const said = error?.message ?? '';
    if (said !== reported) fault(error);
    reported = said;
    return last.value;
  };
}

const DIRECTORY = 'it is a directory';
const NOT_REGULAR = 'it is not a regular file';

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EACCES: 'permission denied',
  EISDIR: DIRECTORY,
  ENOTDIR: 'a part of its path is not a directory',
  EROFS: 'the file system is read-only',
  // A unix socket cannot be opened.
  ENXIO: NOT_REGULAR,
};

/** Returns why a file cannot be read or written, in words, for a sentence that names it. */
export function reasonOf(error: unknown): string {
  if (error instanceof UnusableFile) return error.reason;
  const { code, message } = error as NodeJS.ErrnoException;
  return REASONS[code ?? ''] ?? message.replaceAll(/\s+/g, ' ');
}

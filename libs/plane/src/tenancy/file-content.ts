import { readFileSync, statSync } from 'node:fs';

/** A file as it was last read. */
export interface Content<T> {
  /** Changes when the file does. */
  readonly mark: string;
  readonly value: T;
}

/** A file's state, without its content. */
export interface FileState {
  readonly mark: string;
  readonly size: number;
  /** Why it cannot be read. */
  readonly fault?: Error;
}

/** Reads a file's state. Blocks, because a thousand small files cost five times as much in threads. */
export function stateOf(path: string): FileState {
  try {
    const stat = statSync(path);
    const { size, mtimeMs, ino, ctimeMs } = stat;
    // Joined, because V8 would keep the parts of a template string in memory as well.
    const mark = [ino, size, mtimeMs, ctimeMs].join(' ');
    // A pipe or a device might never end.
    return stat.isFile() ? { mark, size } : { mark, size, fault: new Error('it is not a regular file') };
  } catch (error) {
    return { mark: (error as Error).message, size: 0, fault: error as Error };
  }
}

/**
 * Reads a file if it has changed since `before`.
 * @returns `before` itself if nothing has changed
 * @throws the file system's error, or one that says that the file is too large
 */
export function readIfChanged<T>(
  path: string,
  most: number,
  before: Content<T> | undefined,
  read: (content: Buffer) => T,
  { mark, size, fault } = stateOf(path),
): Content<T> {
  if (fault) throw fault;
  if (before?.mark === mark) return before;
  if (size > most) throw new Error(`it has ${size} bytes: at most ${most} are allowed`);
  const content = readFileSync(path);
  if (content.length > most) throw new Error(`it has more than ${most} bytes`);
  return { mark, value: read(content) };
}

import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import process from 'node:process';

/** How many bytes may wait for a log that currently accepts nothing. More is lost, and counted. */
const MAX_WAITING = 1024 * 1024;

/** When waiting lines are retried if no new line arrives, in milliseconds. */
const RETRY_MS = 100;

/** How long a full log may delay a process that exits, in milliseconds: in total, and between two tries. */
const EXIT_MS = 200;
const EXIT_RETRY_MS = 5;

/** The most bytes that a pipe takes as a whole or not at all (PIPE_BUF of Linux). */
export const PIPE_BUF = 4096;

const NEWLINE = 0x0a;

/** Why a line is lost if the log has not failed. */
const TOO_LONG = 'too long';

const STDOUT = 1;
const STDERR = 2;

/** Writes some of the bytes and returns how many, or throws as fs.writeSync does. */
export type WriteBytes = (bytes: Uint8Array) => number;

/**
 * Writes lines to a log that may fail: its disk is full, its reader hangs or is gone. No program ends or waits because of that. Up to
 * MAX_WAITING bytes wait and the rest is lost. Once the log takes lines again, a line says how many were lost.
 *
 * The few lines of one event loop turn are one write: a system call costs as much as the line that it writes. Many lines are written
 * in pieces of whole lines, each of which a pipe takes whole. So nothing that others write to the pipe lands inside a line.
 */
export class LogSink {
  readonly #write: WriteBytes;
  readonly #told: (lines: number, reason: string) => void;
  /** Lines that wait behind `#bytes`. */
  #lines = '';
  /** What the log has not taken of the last write. A full disk may cut a line in two: its rest goes first. */
  #bytes: Uint8Array = Buffer.alloc(0);
  /** The size of both, in bytes. */
  #size = 0;
  #lost = 0;
  #reason = TOO_LONG;
  #turn: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Set when the process exits: it waits no longer than this. */
  #exitBy: number | undefined;

  /** @param told called when the log works again, with how many lines were lost and why: the code of an error, or `too long` */
  constructor(write: WriteBytes, told: (lines: number, reason: string) => void) {
    this.#write = write;
    this.#told = told;
  }

  write(line: string): void {
    const size = Buffer.byteLength(line);
    // The turn of the event loop is long, or the log fails.
    if (this.#size + size > MAX_WAITING) this.flush();
    if (this.#size + size > MAX_WAITING) {
      this.#lost++;
    } else {
      this.#lines += line;
      this.#size += size;
    }
    if (this.#exitBy === undefined) this.#turn ??= setImmediate(() => this.#endTurn());
    else this.flush();
  }

  /** Call when the process exits and no other turn follows: writes what waits, and from then on each line at once. Never throws. */
  exit(): void {
    this.#exitBy = performance.now() + EXIT_MS;
    this.flush();
  }

  /** Writes as much of what waits as the log takes. Never throws. */
  flush(): void {
    try {
      this.#drain();
      while (this.#lost > 0) {
        const lines = this.#lost;
        this.#lost = 0;
        this.#told(lines, this.#reason);
        this.#drain();
      }
      this.#reason = TOO_LONG;
    } catch (error) {
      this.#reason = codeOf(error);
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.flush();
      }, RETRY_MS).unref();
    }
  }

  #endTurn(): void {
    this.#turn = undefined;
    this.flush();
  }

  #drain(): void {
    while (this.#bytes.length > 0 || this.#lines !== '') {
      if (this.#bytes.length === 0) {
        this.#bytes = Buffer.from(this.#lines);
        this.#lines = '';
      }
      const written = this.#writePiece(this.#bytes.subarray(0, endOfPiece(this.#bytes)));
      this.#size -= written;
      this.#bytes = this.#bytes.subarray(written);
    }
  }

  /** Waits for a slow reader only if the process exits. */
  #writePiece(bytes: Uint8Array): number {
    for (;;) {
      try {
        return this.#write(bytes);
      } catch (error) {
        const late = this.#exitBy === undefined || performance.now() >= this.#exitBy;
        if (late || codeOf(error) !== 'EAGAIN') throw error;
        sleep(EXIT_RETRY_MS);
      }
    }
  }
}

/** Returns the length of the next piece: as many whole lines as a pipe takes at once, or one longer line. */
function endOfPiece(bytes: Uint8Array): number {
  if (bytes.length <= PIPE_BUF) return bytes.length;
  const end = bytes.lastIndexOf(NEWLINE, PIPE_BUF - 1);
  return (end < 0 ? bytes.indexOf(NEWLINE, PIPE_BUF) : end) + 1 || bytes.length;
}

function sleep(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

/** Writes to standard error by its descriptor. Its stream ends at its first error, and buffers without a bound. */
export function stderrWriter(): WriteBytes {
  const fd = withoutWaiting(STDERR);
  return (bytes) => writeSync(fd, bytes);
}

/** Returns a descriptor for standard output or error on which a reader that hangs blocks nobody. */
export function withoutWaiting(standard: typeof STDOUT | typeof STDERR): number {
  if (fstatSync(standard).isFIFO()) {
    try {
      return openSync(`/proc/self/fd/${standard}`, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch {
      // It is another user's pipe, so its stream has to do.
    }
  }
  // Node makes a pipe or socket non-blocking when it creates its stream. Deno does not, and blocks on such a reader.
  void (standard === STDOUT ? process.stdout : process.stderr);
  return standard;
}

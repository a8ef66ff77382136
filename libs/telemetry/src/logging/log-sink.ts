import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import process from 'node:process';

/** What may wait for a log that takes nothing just now, in bytes; what comes on top is lost, and counted. */
const MAX_WAITING = 1024 * 1024;

/** When what waits is tried again although no line comes, in milliseconds. */
const RETRY_MS = 100;

/** What a log that is full may hold up a process that exits, in milliseconds: in all, and between two tries. */
const EXIT_MS = 200;
const EXIT_RETRY_MS = 5;

/** What a pipe takes as a whole or not at all (PIPE_BUF of Linux), in bytes. */
export const PIPE_BUF = 4096;

const NEWLINE = 0x0a;

/** Why a line is lost though the log has not failed. */
const TOO_LONG = 'too long';

const STDOUT = 1;
const STDERR = 2;

/** Writes some of the bytes and says how many, or throws as fs.writeSync does. */
export type WriteBytes = (bytes: Uint8Array) => number;

/**
 * Lines on their way to a log that may fail: its disk is full, its reader stands still or is gone. No program ends or waits
 * for that: so many lines wait, the rest is lost, and when the log takes lines again it is told how many those were.
 *
 * The few lines of one turn of the event loop are one write: a system call costs as much as the line that it writes. Many are
 * written in pieces of whole lines that a pipe takes as a whole: nothing that others write to it comes amid a line.
 */
export class LogSink {
  readonly #write: WriteBytes;
  readonly #told: (lines: number, reason: string) => void;
  /** Lines that wait behind the bytes. */
  #lines = '';
  /** What the log has not taken yet of the last write. A line may be cut in two where a disk ended: its rest comes first. */
  #bytes: Uint8Array = Buffer.alloc(0);
  /** Of both, in bytes. */
  #size = 0;
  #lost = 0;
  #reason = TOO_LONG;
  #turn: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The process exits, and waits no longer than until then. */
  #exitBy: number | undefined;

  /** @param told the log works again after so many lines were lost for this reason: the code of an error, or `too long` */
  constructor(write: WriteBytes, told: (lines: number, reason: string) => void) {
    this.#write = write;
    this.#told = told;
  }

  write(line: string): void {
    const size = Buffer.byteLength(line);
    // A long turn of the event loop, or a log that fails.
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

  /** The process exits, no other turn comes: writes what waits, and from now on each line at once. Never throws. */
  exit(): void {
    this.#exitBy = performance.now() + EXIT_MS;
    this.flush();
  }

  /** Writes what waits, as far as the log takes it. Never throws. */
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

  /** A reader that is slow is waited for only by a process that exits. */
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

/** As many lines as a pipe takes as a whole; one that is longer is a piece of its own. */
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

/** Writes to the process's standard error, not by its stream: that ends at its first error, and buffers without a bound. */
export function stderrWriter(): WriteBytes {
  const fd = withoutWaiting(STDERR);
  return (bytes) => writeSync(fd, bytes);
}

/** Standard output or error, such that a reader that stands still stops nobody. */
export function withoutWaiting(standard: typeof STDOUT | typeof STDERR): number {
  if (fstatSync(standard).isFIFO()) {
    try {
      return openSync(`/proc/self/fd/${standard}`, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch {
      // Another user's pipe. Then its stream has to do.
    }
  }
  // Node sets a pipe or socket to non-blocking when it makes its stream of it. Deno does not, and waits for such a reader.
  void (standard === STDOUT ? process.stdout : process.stderr);
  return standard;
}

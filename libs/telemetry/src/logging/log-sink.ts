import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import process from 'node:process';
import { TELEMETRY } from '../defaults.ts';
import { LineQueue } from './line-queue.ts';

/** The most bytes that one write to a pipe writes as a whole or not at all (PIPE_BUF of Linux). */
export const PIPE_BUF = 4096;

/** Why a line is lost if the log has not failed. */
const TOO_LONG = 'too long';

const STDOUT = 1;
const STDERR = 2;

/** Writes some of the bytes and returns how many, or throws as fs.writeSync does. */
export type WriteBytes = (bytes: Uint8Array) => number;

/**
 * Writes lines to a log that may fail: its disk is full, its reader hangs or is gone. That never ends the program or makes it wait. Up
 * to `TELEMETRY.logQueueBytes` are queued and the rest is lost. Once the log accepts lines again, a line says how many were lost.
 *
 * All lines of one event loop tick are one write, because a system call costs as much as a line. If they are many, they are written in
 * pieces of whole lines, small enough for a pipe to take each piece whole. So other writers of the pipe cannot write into a line.
 */
export class LogSink {
  readonly #write: WriteBytes;
  readonly #dropped: (lines: number, reason: string) => void;
  readonly #queue = new LineQueue(TELEMETRY.logQueueBytes, PIPE_BUF);
  #lost = 0;
  #reason = TOO_LONG;
  #tick: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Set when the process exits: it waits until then at most (`performance.now()`). */
  #exitBy: number | undefined;

  /** @param told called when the log works again, with how many lines were lost and why: the code of an error, or `too long` */
  constructor(write: WriteBytes, dropped: (lines: number, reason: string) => void) {
    this.#write = write;
    this.#dropped = dropped;
  }

  write(line: string): void {
    if (!this.#queue.push(line)) {
      // This tick is long, or the log fails.
      this.flush();
      if (!this.#queue.push(line)) this.#lost++;
    }
    if (this.#exitBy === undefined) this.#tick ??= setImmediate(() => this.#endTick());
    else this.flush();
  }

  /** Call when the process exits and no other tick follows. Writes all waiting lines, and later lines immediately. Never throws. */
  exit(): void {
    this.#exitBy = performance.now() + TELEMETRY.logExitMs;
    this.flush();
  }

  /** Writes as many of the waiting lines as the log accepts. Never throws. */
  flush(): void {
    try {
      this.#drain();
      while (this.#lost > 0) {
        const lines = this.#lost;
        this.#lost = 0;
        this.#dropped(lines, this.#reason);
        this.#drain();
      }
      this.#reason = TOO_LONG;
    } catch (error) {
      this.#reason = codeOf(error);
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.flush();
      }, TELEMETRY.logRetryMs).unref();
    }
  }

  #endTick(): void {
    this.#tick = undefined;
    this.flush();
  }

  #drain(): void {
    for (let piece = this.#queue.next(); piece.length > 0; piece = this.#queue.next())
      this.#queue.wrote(this.#writePiece(piece));
  }

  /** Waits for a slow reader only if the process exits. */
  #writePiece(bytes: Uint8Array): number {
    for (;;) {
      try {
        return this.#write(bytes);
      } catch (error) {
        const late = this.#exitBy === undefined || performance.now() >= this.#exitBy;
        if (late || codeOf(error) !== 'EAGAIN') throw error;
        sleep(TELEMETRY.logExitRetryMs);
      }
    }
  }
}

function sleep(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** The code of a system's error. */
export function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

/** Writes to the descriptor of standard error. Node's stream for it would end at the first error, and buffer without a bound. */
export function stderrWriter(): WriteBytes {
  const fd = withoutWaiting(STDERR);
  return (bytes) => writeSync(fd, bytes);
}

/** Returns a non-blocking descriptor for standard output or error, so that a reader that hangs does not block the process. */
export function withoutWaiting(standard: typeof STDOUT | typeof STDERR): number {
  if (fstatSync(standard).isFIFO()) {
    try {
      return openSync(`/proc/self/fd/${standard}`, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch {
      // The pipe belongs to another user, so use the standard descriptor.
    }
  }
  // Node makes a pipe or socket non-blocking when it creates the stream. Deno does not, and blocks if the reader hangs.
  void (standard === STDOUT ? process.stdout : process.stderr);
  return standard;
}

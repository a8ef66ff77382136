import { close, constants, fstatSync, open, write, writeSync } from 'node:fs';
import { promisify } from 'node:util';
import { within } from '@isthmus/runtime';
import { TELEMETRY } from '../defaults.ts';
import { LineQueue } from '../logging/line-queue.ts';
import { codeOf, PIPE_BUF, withoutWaiting } from '../logging/log-sink.ts';

/** A file, or something that is written like one. */
export interface LineTarget {
  /** How many bytes one write should take. */
  readonly batch: number;
  /** Opens or reopens it. If that fails, what was open stays open. */
  open(): Promise<void>;
  /** Writes some of the bytes and returns how many. */
  write(bytes: Uint8Array): Promise<number>;
  /** The same, synchronously. */
  writeSync(bytes: Uint8Array): number;
  close(): Promise<void>;
}

/** Reports what an operator should act on. */
interface WriterReport {
  /** Nothing can be written, for this reason. Writes are retried until they work. */
  failing(reason: string): void;
  /** Writes work again. */
  works(): void;
  /** The target could not be reopened, for this reason. The old one stays in use. */
  kept(reason: string): void;
  /** This many lines are lost: too many waited, or the writer ended before it wrote them. */
  dropped(lines: number): void;
}

/**
 * Writes lines to a target that may fail or be slow. Callers never wait: one write runs at a time, off the event loop. Up to
 * `TELEMETRY.auditQueueBytes` are queued; further lines are lost and counted. A partly written line is completed, or written again in full if
 * the target was reopened in between.
 */
export class LineWriter {
  readonly #target: LineTarget;
  readonly #report: WriterReport;
  readonly #queue: LineQueue;
  #writing = false;
  #failing = false;
  /** Whether lines were lost since writes last worked. */
  #losing = false;
  /** Whether the target was opened, and when to open it next (`performance.now()`); undefined if that is not needed. */
  #opened = false;
  #openAt: number | undefined = 0;
  #active = false;
  #running: Promise<void> = Promise.resolve();
  #wake = () => {};
  #over = false;

  constructor(target: LineTarget, report: WriterReport) {
    this.#target = target;
    this.#report = report;
    this.#queue = new LineQueue(TELEMETRY.auditQueueBytes, target.batch);
    this.#run();
  }

  /** @param line ends with a newline */
  write(line: string): void {
    if (this.#over || !this.#queue.push(line)) {
      this.#losing = true;
      this.#report.dropped(1);
      return;
    }
    this.#run();
  }

  /** Reopens the file, so that later lines go to the file that now has the name. */
  reopen(): void {
    this.#openAt = 0;
    this.#run();
  }

  /** Writes the waiting lines, within `TELEMETRY.auditEndMs`. After that nothing is written. */
  async end(): Promise<void> {
    await within(this.#running, TELEMETRY.auditEndMs);
    this.#finish();
    if (!this.#writing) await this.#target.close().catch(() => {});
  }

  /** Writes the waiting lines synchronously, for a process that exits. A write in progress is left to complete by itself. */
  endSync(): void {
    if (this.#over) return;
    try {
      const queue = this.#queue;
      if (this.#writing) queue.wrote(queue.next().length);
      for (let piece = queue.next(); piece.length > 0; piece = queue.next()) queue.wrote(this.#target.writeSync(piece));
    } catch {
      // This was the last chance.
    }
    this.#finish();
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#wake();
    const lines = this.#queue.clear();
    if (lines > 0) this.#report.dropped(lines);
  }

  #run(): void {
    if (this.#active) return;
    this.#active = true;
    this.#running = this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    while (!this.#over && (this.#mustOpen || this.#queue.bytes > 0)) {
      try {
        if (this.#mustOpen) await this.#open();
        else await this.#writeNext();
      } catch (error) {
        if (this.#over) break;
        this.#fail(codeOf(error));
        await this.#pause();
      }
    }
    // Runs in the same turn as the last check, so a line that arrives later starts another round.
    this.#active = false;
  }

  get #mustOpen(): boolean {
    return this.#openAt !== undefined && performance.now() >= this.#openAt;
  }

  async #open(): Promise<void> {
    // Cleared before the open, so that a reopen that is requested meanwhile is not forgotten.
    this.#openAt = undefined;
    try {
      await this.#target.open();
    } catch (error) {
      this.#openAt ??= this.#opened ? performance.now() + TELEMETRY.auditReopenMs : 0;
      if (!this.#opened) throw error;
      this.#report.kept(codeOf(error));
      return;
    }
    this.#opened = true;
    // A line that was partly written to the old file is written in full to the new one.
    this.#queue.repeatLine();
  }

  async #writeNext(): Promise<void> {
    this.#writing = true;
    try {
      this.#queue.wrote(await this.#target.write(this.#queue.next()));
    } finally {
      this.#writing = false;
    }
    // While the queue is still long, further lines would be lost, so do not report success yet.
    if (!this.#failing && !this.#losing) return;
    if (this.#losing && this.#queue.bytes > this.#target.batch) return;
    this.#failing = false;
    this.#losing = false;
    this.#report.works();
  }

  #fail(reason: string): void {
    // A full pipe has a slow reader. That matters only once lines are lost.
    if (this.#failing || reason === 'EAGAIN') return;
    this.#failing = true;
    this.#report.failing(reason);
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, TELEMETRY.auditRetryMs).unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** The owner writes and the group reads, for a log collector in the group. */
const FILE_MODE = 0o640;

/** Non-blocking, so that a pipe that nobody reads does not block a thread. */
const FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

const STDOUT = 1;

const onDeno = 'Deno' in globalThis;

/** Returns a target that appends to a file. A reopen opens the file that has the name by then. */
export function fileTarget(path: string): LineTarget {
  let fd: number | undefined;
  return {
    batch: TELEMETRY.auditWriteBytes,
    async open() {
      const opened = await promisify(open)(path, FLAGS, FILE_MODE);
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

async function closeFile(fd: number): Promise<void> {
  // Nothing can be done about a failure.
  await promisify(close)(fd).catch(() => {});
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

import { constants, fstatSync, openSync } from 'node:fs';
import process from 'node:process';
import sonic from 'sonic-boom';
import { TELEMETRY } from '../defaults.ts';

/** The most bytes that one write to a pipe writes as a whole or not at all (PIPE_BUF of Linux). */
const PIPE_BUF = 4096;

/** The owner writes and the group reads, for a log collector in the group. */
const FILE_MODE = 0o640;

/** Why a line is lost if writing has not failed. */
const TOO_LONG = 'too long';

/** Reports what an operator should act on. A reason is the code of an error. */
interface SinkReport {
  /** Nothing can be written. Lines wait, and are tried again. */
  failing?(reason: string): void;
  /** What waited is written. So many lines were lost before, for the last of them why. */
  works(lost: number, reason: string): void;
  /** The file could not be reopened, so the old one stays in use. */
  kept?(reason: string): void;
  /** So many lines are lost. */
  lost?(lines: number, reason: string): void;
}

/**
 * Writes lines to a file, a pipe or a terminal, which may fail: its disk is full, its reader hangs or is gone. That never ends the program
 * or makes it wait. So many bytes of lines wait, and further lines are lost.
 *
 * All lines of one event loop tick are one write, because a system call costs as much as a line. If they are many, they are written in
 * pieces of whole lines, small enough for a pipe to take each piece whole. So other writers of the pipe cannot write into a line.
 */
export class LineSink {
  readonly #to: string | number;
  readonly #bytes: number;
  readonly #report: SinkReport;
  /** Undefined until the file can be opened. */
  #stream: sonic.SonicBoom | undefined;
  /** Those of this tick. */
  #lines = '';
  /** How many lines the stream has, since it last wrote all. */
  #waiting = 0;
  /** Why the last write failed, until one works; how many lines were lost since, and why the last of them was. */
  #failure: string | undefined;
  #lost = 0;
  #lostFor = '';
  #reopening = false;
  #tick: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Set when the process exits: it waits until then at most (`performance.now()`). */
  #exitBy: number | undefined;

  /** @param to a path, or a descriptor of which writes do not block @param bytes how many may wait */
  constructor(to: string | number, bytes: number, report: SinkReport) {
    this.#to = to;
    this.#bytes = bytes;
    this.#report = report;
    this.flush();
  }

  /** @param line ends with a newline */
  write(line: string): void {
    if (this.#lines.length + line.length > PIPE_BUF) this.flush();
    this.#lines += line;
    if (this.#exitBy !== undefined) this.flush();
    else this.#tick ??= setImmediate(() => this.#endTick());
  }

  /** Opens the file again, so that later lines go to the file that now has the name. */
  reopen(): void {
    this.#reopening = typeof this.#to === 'string';
    this.flush();
  }

  /**
   * Call when the process exits and no other tick follows. Writes all waiting lines, and later lines immediately. Never throws.
   * @returns how many lines still wait
   */
  exit(): number {
    this.#exitBy = performance.now() + TELEMETRY.logExitMs;
    this.flush();
    return this.#waiting;
  }

  /** Writes as many of the waiting lines as possible. Never throws. */
  flush(): void {
    const before = this.#failure;
    this.#failure = undefined;
    const stream = this.#opened();
    // What has waited is tried first: a stream that is full takes no more lines, and tries nothing.
    if (before !== undefined) stream?.write('');
    const lines = this.#lines;
    this.#lines = '';
    const count = lines === '' ? 0 : lines.split('\n').length - 1;
    this.#waiting += count;
    if (lines !== '' && stream) stream.write(lines);
    else if (count > 0) this.#drop(count);
    while (this.#failure === 'EAGAIN' && performance.now() < (this.#exitBy ?? 0)) {
      sleep(TELEMETRY.logExitRetryMs);
      this.#failure = undefined;
      stream?.write('');
    }
    this.#settle(before);
  }

  #settle(before: string | undefined): void {
    const failure = this.#failure;
    if (failure === undefined) {
      this.#waiting = 0;
      const lost = this.#lost;
      if (before === undefined && lost === 0) return;
      this.#lost = 0;
      this.#report.works(lost, this.#lostFor);
      return;
    }
    if (before === undefined) this.#report.failing?.(failure);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.flush();
    }, TELEMETRY.logRetryMs).unref();
  }

  /** Returns the stream, which is opened or reopened first if that is due. */
  #opened(): sonic.SonicBoom | undefined {
    try {
      if (this.#stream && this.#reopening) this.#stream.reopen();
      else this.#stream ??= this.#open();
      this.#reopening = false;
    } catch (error) {
      const reason = codeOf(error);
      if (this.#stream) {
        // Each reopen adds a listener that closes the old descriptor: two would close it twice, and it may be another's by then.
        this.#stream.removeAllListeners('ready');
        this.#reopening = false;
        this.#report.kept?.(reason);
        setTimeout(() => this.reopen(), TELEMETRY.auditReopenMs).unref();
      } else this.#failure = reason;
    }
    return this.#stream;
  }

  #open(): sonic.SonicBoom {
    const options = { dest: this.#to, sync: true, maxLength: this.#bytes, maxWrite: PIPE_BUF, mode: FILE_MODE };
    // The stream itself would let the process sleep while a reader is slow.
    const stream = new sonic.SonicBoom({ ...options, retryEAGAIN: () => false });
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.syscall !== 'open') this.#failure = codeOf(error);
    });
    stream.on('drop', (lines: string) => this.#drop(lines.split('\n').length - 1));
    return stream;
  }

  #drop(lines: number): void {
    this.#waiting -= lines;
    this.#lost += lines;
    this.#lostFor = this.#failure ?? TOO_LONG;
    this.#report.lost?.(lines, this.#lostFor);
  }

  #endTick(): void {
    this.#tick = undefined;
    this.flush();
  }
}

function sleep(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** The code of a system's error. */
function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

const STDOUT = 1;
const STDERR = 2;

/**
 * Returns a non-blocking descriptor for standard output or error, so that a reader that hangs does not block the process. Node's stream
 * for it would end at the first error, and buffer without a bound.
 */
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

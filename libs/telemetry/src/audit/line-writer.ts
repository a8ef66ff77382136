/** What may wait for a target that takes nothing just now, in bytes: some ten thousand records. What comes on top is lost. */
const MAX_WAITING = 8 * 1024 * 1024;

/** When a write that failed is tried again, in milliseconds. */
const RETRY_MS = 100;

/** When a file that could not be opened again is tried once more, in milliseconds; meanwhile the old one serves. */
const REOPEN_MS = 1000;

/** How long the end waits for what has not been written, in milliseconds. */
const END_MS = 1000;

const NEWLINE = 0x0a;

/** A file, or what is written like one. */
export interface LineTarget {
  /** What one write should take, in bytes. */
  readonly batch: number;
  /** Opens it, again if it was open; what was open stays so if this fails. */
  open(): Promise<void>;
  /** Writes some of the bytes and says how many. */
  write(bytes: Uint8Array): Promise<number>;
  /** The same, at once. */
  writeSync(bytes: Uint8Array): number;
  close(): Promise<void>;
}

/** Told of what an operator acts on. */
export interface WriterReport {
  /** Nothing can be written, for this reason; it is tried again and again. */
  failing(reason: string): void;
  /** What failed works again. */
  works(): void;
  /** It could not be opened again, for this reason; what was open goes on. */
  kept(reason: string): void;
  /** So many lines are lost: too many wait. */
  dropped(lines: number): void;
}

/**
 * Lines on their way to a target that may fail or be slow. Nobody waits for it: one write runs at a time, beside the event
 * loop; so many lines wait, and the rest is lost and counted. A line that was begun is finished, or written again as a whole
 * where the target was opened again in between.
 */
export class LineWriter {
  readonly #target: LineTarget;
  readonly #report: WriterReport;
  readonly #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  /** What is being written, and how much of it is. */
  #batch: Uint8Array = Buffer.alloc(0);
  #written = 0;
  #writing = false;
  #failing = false;
  /** Lines were lost since all was well. */
  #losing = false;
  /** Whether it was opened, and when it is to be opened next: undefined while there is no wish to. */
  #opened = false;
  #openAt: number | undefined = 0;
  #active = false;
  #running: Promise<void> = Promise.resolve();
  #wake = () => {};
  #over = false;

  constructor(target: LineTarget, report: WriterReport) {
    this.#target = target;
    this.#report = report;
    this.#run();
  }

  /** @param line ends with a newline */
  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#over || this.#waitingBytes + this.#left + bytes.length > MAX_WAITING) {
      this.#losing = true;
      this.#report.dropped(1);
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    this.#run();
  }

  /** What comes next goes into the file that now has the name. */
  reopen(): void {
    this.#openAt = 0;
    this.#run();
  }

  /** Writes what waits, within END_MS; then nothing more. */
  async end(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, END_MS);
    });
    await Promise.race([this.#running, late]);
    clearTimeout(timer);
    this.#finish();
    if (!this.#writing) await this.#target.close().catch(() => {});
  }

  /** Writes what waits at once, for a process that exits. What is being written already is left to it. */
  endSync(): void {
    if (this.#over) return;
    try {
      if (this.#writing) this.#written = this.#batch.length;
      for (let next = this.#next(); next.length > 0; next = this.#next()) {
        this.#written += this.#target.writeSync(next);
      }
    } catch {
      // The last chance.
    }
    this.#finish();
  }

  get #left(): number {
    return this.#batch.length - this.#written;
  }

  #finish(): void {
    if (this.#over) return;
    this.#over = true;
    this.#wake();
    const lines = this.#waiting.length + linesIn(this.#batch.subarray(this.#written));
    this.#waiting.length = 0;
    if (lines > 0) this.#report.dropped(lines);
  }

  #run(): void {
    if (this.#active) return;
    this.#active = true;
    this.#running = this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    while (!this.#over && (this.#mustOpen || this.#next().length > 0)) {
      try {
        if (this.#mustOpen) await this.#open();
        else await this.#writeNext();
      } catch (error) {
        if (this.#over) break;
        this.#fail(codeOf(error));
        await this.#pause();
      }
    }
    // In the same turn as the last look: a line that comes after it starts another round.
    this.#active = false;
  }

  get #mustOpen(): boolean {
    return this.#openAt !== undefined && performance.now() >= this.#openAt;
  }

  async #open(): Promise<void> {
    // Before it is open, so that a wish to open it again that comes meanwhile is not forgotten.
    this.#openAt = undefined;
    try {
      await this.#target.open();
    } catch (error) {
      this.#openAt ??= this.#opened ? performance.now() + REOPEN_MS : 0;
      if (!this.#opened) throw error;
      this.#report.kept(codeOf(error));
      return;
    }
    this.#opened = true;
    // A line that was begun in one file is whole in the next.
    this.#written = this.#written === 0 ? 0 : this.#batch.lastIndexOf(NEWLINE, this.#written - 1) + 1;
  }

  async #writeNext(): Promise<void> {
    this.#writing = true;
    try {
      this.#written += await this.#target.write(this.#next());
    } finally {
      this.#writing = false;
    }
    // A queue that is still long would lose the next lines: that trouble is not over.
    if (!this.#failing && !this.#losing) return;
    if (this.#losing && this.#left + this.#waitingBytes > this.#target.batch) return;
    this.#failing = false;
    this.#losing = false;
    this.#report.works();
  }

  /** What is to be written next: the rest of the batch, or another of whole lines. */
  #next(): Uint8Array {
    if (this.#left === 0) {
      let count = 0;
      let length = 0;
      for (const { length: more } of this.#waiting) {
        if (count > 0 && length + more > this.#target.batch) break;
        count++;
        length += more;
      }
      this.#batch = Buffer.concat(this.#waiting.splice(0, count));
      this.#written = 0;
      this.#waitingBytes -= length;
    }
    return this.#batch.subarray(this.#written);
  }

  #fail(reason: string): void {
    // A pipe that is full has a reader that is slow; it is of interest once lines are lost.
    if (this.#failing || reason === 'EAGAIN') return;
    this.#failing = true;
    this.#report.failing(reason);
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, RETRY_MS).unref();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

function linesIn(bytes: Uint8Array): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}

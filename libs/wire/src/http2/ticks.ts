import { Queue } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';

type Act = () => void;

let waiting: Act[] = [];
/** Those that have just run: the array is used again. */
let spare: Act[] = [];

/**
 * Calls back once the sockets that have something to read were read: in the next check phase of the event loop. All that waits for it shares one
 * immediate, because each costs Node 25 calls.
 */
export function afterReads(act: Act): void {
  if (waiting.push(act) === 1) setImmediate(runAfterReads);
}

function runAfterReads(): void {
  const now = waiting;
  waiting = spare;
  let done = 0;
  try {
    while (done < now.length) (now[done++] as Act)();
  } finally {
    // One that throws ends the process, unless somebody catches that: then the others must not be lost.
    if (done < now.length) now.slice(done).forEach(afterReads);
    now.length = 0;
    spare = now;
  }
}

/** Handles the ends of streams and connections in their order, spread over ticks of the event loop. */
export class Closings {
  readonly #later: (next: () => void) => void;
  readonly #waiting = new Queue<() => void>();
  /** How many may still be called in this tick. */
  #left = WIRE.closingsATick;
  #scheduled = false;

  constructor(later: (next: () => void) => void = afterReads) {
    this.#later = later;
  }

  /** Calls back at once, or in a later tick if many have ended in this one. @param closed must not throw */
  add(closed: () => void): void {
    this.#schedule();
    if (this.#left > 0 && this.#waiting.size === 0) {
      this.#left--;
      closed();
    } else this.#waiting.push(closed);
  }

  #schedule(): void {
    if (!this.#scheduled) this.#later(() => this.#tick());
    this.#scheduled = true;
  }

  #tick(): void {
    this.#scheduled = false;
    for (this.#left = WIRE.closingsATick; this.#left > 0 && this.#waiting.size > 0; this.#left--)
      this.#waiting.shift()?.();
    if (this.#waiting.size > 0) this.#schedule();
  }
}

/** Shared by this process. */
export const closings: Closings = new Closings();

/** What connections have read in this tick of the event loop. */
export class ReadBudget {
  /** Counts the ticks that begin: those in which much is read. */
  #tick = 0;
  #bytes = 0;
  #begun = false;
  readonly #later: (next: () => void) => void;
  readonly #next = () => {
    this.#begun = false;
    this.#tick++;
    this.#bytes = 0;
  };

  constructor(later: (next: () => void) => void = afterReads) {
    this.#later = later;
  }

  /** Counts bytes that one connection read, or what a stream that it opened counts for. @returns whether it should rest until the next tick */
  count(reader: ConnectionReads, bytes: number): boolean {
    this.#bytes += bytes;
    // Most ticks read far less. What they read counts until a tick has begun, so that none reads more than it may.
    if (!this.#begun && this.#bytes >= WIRE.readATickBytes / 2) {
      this.#begun = true;
      this.#tick++;
      this.#later(this.#next);
    }
    if (reader.tick !== this.#tick) {
      reader.tick = this.#tick;
      reader.bytes = 0;
    }
    reader.bytes += bytes;
    return this.#bytes >= WIRE.readATickBytes && reader.bytes > WIRE.readAtLeastBytes;
  }
}

/** What one connection has read. `ReadBudget` alone writes it. */
export class ConnectionReads {
  /** The last tick in which it read. */
  tick = -1;
  /** Of that tick. */
  bytes = 0;
}

/** Shared by this process. */
export const readBudget = new ReadBudget();

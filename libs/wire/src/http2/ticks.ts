import { Queue, Rounds, type TakesTurns } from '@isthmus/runtime';
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

/** Connections that are read in turns as one: those of a tenant, or one alone. */
export class Readers extends Queue<() => void> implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  /** The last tick in which they read. `ReadBudget` alone writes it. */
  tick = -1;
  /** Of that tick. */
  bytes = 0;
}

/** What one connection has read, as `Readers` have. */
export class ConnectionReads {
  /** Those that it is read in turns with. */
  readers = new Readers();
  tick = -1;
  bytes = 0;
}

/**
 * What connections read in a tick of the event loop. Those that have read enough rest, and read on in turns: of any number of one tenant's, no
 * more in a tick than of one.
 */
export class ReadBudget {
  /** Counts the ticks that begin: those in which much is read. */
  #tick = 0;
  #bytes = 0;
  #begun = false;
  /** Those with connections that rest. */
  readonly #rounds = new Rounds<Readers>(WIRE.readAtLeastBytes);
  readonly #later: (next: () => void) => void;
  readonly #next = () => {
    this.#begun = false;
    this.#bytes = 0;
    this.#readOn();
  };

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Counts bytes that one connection read, or what a stream that it opened counts for. @returns whether it should rest */
  count(own: ConnectionReads, bytes: number): boolean {
    const { readers } = own;
    this.#bytes += bytes;
    // Most ticks read far less. What they read counts until a tick has begun, so that none reads more than it may.
    if (this.#bytes >= WIRE.readATickBytes / 2) this.#begin();
    if (own.tick !== this.#tick) {
      own.tick = this.#tick;
      own.bytes = 0;
      if (readers.tick !== this.#tick) readers.bytes = 0;
      readers.tick = this.#tick;
    }
    own.bytes += bytes;
    readers.bytes += bytes;
    // Who has little to read rests for nobody: it may be one of thousands.
    const much = readers.bytes > WIRE.readAtLeastBytes && own.bytes > WIRE.readAtLeastBytes / 2;
    return this.#bytes >= WIRE.readATickBytes && much;
  }

  /** A connection that has rested is read again: this tick has so much less for others. */
  expect(): void {
    this.#bytes += 2 * WIRE.readAtLeastBytes;
  }

  /** Calls back when it is the turn of a connection that rests: in the next tick, or a later one if many do. */
  rest({ readers }: ConnectionReads, readOn: () => void): void {
    readers.push(readOn);
    this.#rounds.enter(readers);
    // A long frame may have kept it from resting in the tick that was full.
    this.#begin();
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#tick++;
    this.#later(this.#next);
  }

  #readOn(): void {
    let readers = this.#rounds.current;
    while (readers && this.#bytes < WIRE.readATickBytes) {
      const before = this.#bytes;
      // It may rest again.
      readers.shift()?.();
      if (readers.size === 0) this.#rounds.leave();
      else this.#rounds.spend(this.#bytes - before);
      readers = this.#rounds.current;
    }
    if (readers) this.#begin();
  }
}

/** Shared by this process. */
export const readBudget = new ReadBudget();

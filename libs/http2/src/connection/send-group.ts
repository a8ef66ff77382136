import type { TakesTurns } from '@isthmus/runtime';
import type { BulkWriter, Sender } from './output.ts';

/** Taken items are dropped together, once there are at least this many of them. */
const DROPPED_AT_ONCE = 256;

/** How many streams may wait before a search for those that have closed meanwhile. */
const PRUNE_AT = 1000;

/** A queue of one group. */
export class Line<T> implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  #items: (T | undefined)[] = [];
  /** Items at the front that were taken. */
  #taken = 0;

  get length(): number {
    return this.#items.length - this.#taken;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.#items[this.#taken];
    if (item === undefined) return undefined;
    this.#items[this.#taken++] = undefined;
    if (this.length === 0) this.#keep([]);
    else if (this.#taken >= DROPPED_AT_ONCE && this.#taken >= this.length) this.#keep(this.#items.slice(this.#taken));
    return item;
  }

  /** Takes the first of them. */
  take(count: number): T[] {
    const taken: T[] = [];
    while (taken.length < count && this.length > 0) taken.push(this.shift() as T);
    return taken;
  }

  /** Forgets the others. */
  filter(keep: (item: T) => boolean): void {
    this.#keep(this.#items.filter((item) => item !== undefined && keep(item)));
  }

  #keep(items: (T | undefined)[]): void {
    this.#items = items;
    this.#taken = 0;
  }
}

/** A stream with no more than this to send overtakes bulk, in bytes. */
const SMALL_BYTES = 2048;

/** Streams of a group that wait for their turn to send. Those with little to send take every other turn, so that they wait for few others. */
class ReadyLine implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  readonly #bulk = new Line<Sender>();
  readonly #small = new Line<Sender>();
  #wasSmall = false;
  #pruneAt = PRUNE_AT;

  get length(): number {
    return this.#bulk.length + this.#small.length;
  }

  /** @returns how many more wait than before */
  offer(sender: Sender): number {
    const before = this.length;
    if (before >= this.#pruneAt) this.#prune();
    (sender.pending <= SMALL_BYTES ? this.#small : this.#bulk).push(sender);
    return this.length - before;
  }

  shift(): Sender | undefined {
    this.#wasSmall = this.#small.length > 0 && !(this.#wasSmall && this.#bulk.length > 0);
    return (this.#wasSmall ? this.#small : this.#bulk).shift();
  }

  /** Forgets streams that have nothing left to send: while nothing may leave, closed ones would pile up here. */
  #prune(): void {
    const waits = (sender: Sender) => {
      if (!sender.sendable) sender.offered = false;
      return sender.offered;
    };
    this.#bulk.filter(waits);
    this.#small.filter(waits);
    this.#pruneAt = Math.max(PRUNE_AT, 2 * this.length);
  }
}

/** Bulk writers of a group that wait to be asked for more. */
class WriterLine extends Line<BulkWriter> {
  readonly ready: ReadyLine;

  constructor(ready: ReadyLine) {
    super();
    this.ready = ready;
  }
}

/** The streams of one tenant on a connection. Groups that have something to send get the same share of it. */
export class SendGroup {
  readonly name: string | undefined;
  readonly ready = new ReadyLine();
  readonly writers = new WriterLine(this.ready);
  /** Open streams. */
  streams = 0;

  constructor(name?: string) {
    this.name = name;
  }
}

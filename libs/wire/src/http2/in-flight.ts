import type { Pings } from './pings.ts';

/** The most that a link of several groups may have under way besides what its path holds, in bytes. A busy process reads as much in a few turns. */
const MOST_SHARED = 512 * 1024;

/** The same for a link of one group: nobody waits behind it, and few checkpoints cost less. */
const MOST_ALONE = 4 * 1024 * 1024;

/** What a path holds at most for each millisecond of its round-trip time, in bytes: the 160 MB/s that windows are made for. */
const BYTES_PER_MS = 160 * 1024;

/** What a link may always have under way, in bytes. A path of 1 Mbit/s takes 66 ms for it. */
const LEAST = 8 * 1024;

/** What a link may have under way at first, in bytes. */
const AT_FIRST = 64 * 1024;

/** Bytes that wait on the path for longer than this make everything behind them late, in milliseconds. */
const QUEUE_MS = 50;

/** A path is emptied again only after this time, in milliseconds: if bytes waited there, and if they did not. */
const EMPTY_AGAIN_MS = { full: 1000, long: 5_000 };

/** Checkpoints that are under way while it is full. With fewer, the sender would pause between their answers. */
const CHECKPOINTS_UNDER_WAY = 8;

/**
 * Bounds the bytes that a link has sent and the other process has not read. The kernel accepts up to 4 MB from the sender, and keeps up to
 * 32 MB for the reader, and what waits there delays the next byte of all streams, and PINGs. A checkpoint is a PING between DATA frames: its
 * answer says that the other process has read all DATA before it, and when.
 *
 * The bound follows the path. It doubles in each round in which answers come without delay. If all answers of a round are late, the bytes
 * wait somewhere, or the path has become longer. So the link has only LEAST under way for a round, with which the path is as good as empty:
 * what answers take then is the path's own, or that of a process that is busy, and the bound falls by as much as the rest exceeds QUEUE_MS.
 */
export class InFlight {
  readonly #pings: Pick<Pings, 'rtt'>;
  #shared = false;
  #limit = AT_FIRST;
  /** Bytes since the beginning: sent, sent before the latest checkpoint, and read by the other side. */
  #sent = 0;
  #checkpointAt = 0;
  #read = 0;
  /** A round is over once this many bytes have been read. */
  #roundEnd = 0;
  /** The fastest answer of the round, in milliseconds. */
  #fastest = Number.POSITIVE_INFINITY;
  /** Whether the limit has held anything up in the round. */
  #wasFull = false;
  /** Set while the path is emptied: the rounds until it is, and the limit and the fastest answer before. */
  #emptying: { rounds: number; readonly limit: number; readonly fastest: number } | undefined;
  #emptyAgainAt = Number.NEGATIVE_INFINITY;
  /** What an answer took while the path was empty, or less if one took less since, in milliseconds. */
  #path = 0;

  constructor(pings: Pick<Pings, 'rtt'>) {
    this.#pings = pings;
  }

  /** Several groups use the link from now on. */
  share(): void {
    this.#shared = true;
  }

  /** Bytes that were sent, and that the other side has not read as far as is known. */
  get unread(): number {
    return this.#sent - this.#read;
  }

  /**
   * How many bytes may leave now. 0 only while a checkpoint is under way, because its answer ends the wait. Without one, the limit may still
   * be exceeded, because it falls.
   */
  get room(): number {
    const room = Math.max(0, Math.floor(Math.min(this.#limit, this.#most)) - this.unread);
    return this.#checkpointAt > this.#read ? room : Math.max(LEAST, room);
  }

  get #most(): number {
    return (this.#shared ? MOST_SHARED : MOST_ALONE) + this.#usual * BYTES_PER_MS;
  }

  /** What an answer takes if nothing waits on the path, in milliseconds. */
  get #usual(): number {
    return Math.max(this.#pings.rtt, this.#path);
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    this.#sent += bytes;
    if (this.unread >= this.#limit - LEAST / CHECKPOINTS_UNDER_WAY) this.#wasFull = true;
    return this.#sent - this.#checkpointAt >= Math.min(this.#limit, this.#most) / CHECKPOINTS_UNDER_WAY;
  }

  /** A checkpoint leaves now. @returns what to call when it is answered, with the time that this took in milliseconds */
  checkpoint(): (took: number) => void {
    const at = this.#sent;
    this.#checkpointAt = at;
    return (took) => {
      this.#read = at;
      this.#fastest = Math.min(this.#fastest, took);
      if (at >= this.#roundEnd) this.#endRound();
    };
  }

  #endRound(): void {
    const late = this.#fastest - this.#usual;
    this.#path = Math.min(this.#path, this.#fastest);
    if (this.#emptying) this.#goOn(this.#emptying);
    else if (this.#wasFull && late < QUEUE_MS / 2) this.#limit = Math.min(this.#most, 2 * this.#limit);
    else if (this.#wasFull && performance.now() >= this.#emptyAgainAt) {
      // Two rounds: what is under way now, and the first that begins with little.
      this.#emptying = { rounds: 2, limit: this.#limit, fastest: this.#fastest };
      this.#limit = LEAST;
    }
    this.#roundEnd = this.#sent;
    this.#fastest = Number.POSITIVE_INFINITY;
    this.#wasFull = false;
  }

  #goOn(before: { rounds: number; readonly limit: number; readonly fastest: number }): void {
    if (--before.rounds > 0) return;
    this.#emptying = undefined;
    this.#path = this.#fastest;
    const fits = Math.min(1, (this.#path + QUEUE_MS) / before.fastest);
    this.#limit = Math.max(LEAST, fits * before.limit);
    this.#emptyAgainAt = performance.now() + EMPTY_AGAIN_MS[fits < 1 ? 'full' : 'long'];
  }
}

import { type Config, WIRE } from '../defaults.ts';
import type { Pings } from './pings.ts';

/**
 * Bounds the bytes that a link has sent and the other process has not read. The kernel accepts up to 4 MB from the sender, and keeps up to
 * 32 MB for the reader, and what waits there delays the next byte of all streams, and PINGs. A checkpoint is a PING between DATA frames: its
 * answer says that the other process has read all DATA before it, and when.
 *
 * The bound follows the path. It doubles in each round in which answers come without delay. If all answers of a round are late, the bytes
 * wait somewhere, or the path has become longer. So the link has only `inFlightLeastBytes` under way for a round, with which the path is as good as empty:
 * what answers take then is the path's own, or that of a process that is busy, and the bound falls by as much as the rest exceeds `queueMs`.
 */
export class InFlight {
  readonly #pings: Pick<Pings, 'rtt'>;
  readonly #config: Config;
  #shared = false;
  #limit: number;
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

  constructor(pings: Pick<Pings, 'rtt'>, config: Config = WIRE) {
    this.#pings = pings;
    this.#config = config;
    this.#limit = config.inFlightFirstBytes;
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
    const room = Math.max(0, Math.floor(Math.min(this.#limit, this.#most())) - this.unread);
    return this.#checkpointAt > this.#read ? room : Math.max(this.#config.inFlightLeastBytes, room);
  }

  #most(): number {
    return (
      (this.#shared ? this.#config.inFlightSharedBytes : this.#config.inFlightAloneBytes) +
      this.#usual() * this.#config.pathBytesPerMs
    );
  }

  /** What an answer takes if nothing waits on the path, in milliseconds. */
  #usual(): number {
    return Math.max(this.#pings.rtt, this.#path);
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    this.#sent += bytes;
    if (this.unread >= this.#limit - this.#config.inFlightLeastBytes / this.#config.checkpoints) this.#wasFull = true;
    return this.#sent - this.#checkpointAt >= Math.min(this.#limit, this.#most()) / this.#config.checkpoints;
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
    const late = this.#fastest - this.#usual();
    this.#path = Math.min(this.#path, this.#fastest);
    if (this.#emptying) this.#goOn(this.#emptying);
    else if (this.#wasFull && late < this.#config.queueMs / 2) this.#limit = Math.min(this.#most(), 2 * this.#limit);
    else if (this.#wasFull && performance.now() >= this.#emptyAgainAt) {
      // Two rounds: what is under way now, and the first that begins with little.
      this.#emptying = { rounds: 2, limit: this.#limit, fastest: this.#fastest };
      this.#limit = this.#config.inFlightLeastBytes;
    }
    this.#roundEnd = this.#sent;
    this.#fastest = Number.POSITIVE_INFINITY;
    this.#wasFull = false;
  }

  #goOn(before: { rounds: number; readonly limit: number; readonly fastest: number }): void {
    if (--before.rounds > 0) return;
    this.#emptying = undefined;
    this.#path = this.#fastest;
    const fits = Math.min(1, (this.#path + this.#config.queueMs) / before.fastest);
    this.#limit = Math.max(this.#config.inFlightLeastBytes, fits * before.limit);
    this.#emptyAgainAt = performance.now() + (fits < 1 ? this.#config.emptyAgainFullMs : this.#config.emptyAgainLongMs);
  }
}

import { type Config, WIRE } from '../defaults.ts';
import type { Pings } from './pings.ts';

/** A time with little under way. */
interface Trial {
  /** Until its end. The first one begins with more under way. */
  rounds: number;
  /** Of what the path holds. */
  readonly share: number;
}

/**
 * Bounds the bytes that a link has sent and the other process has not read. The kernel accepts up to 4 MB from the sender, and keeps up to
 * 32 MB for the reader, and what waits there delays the next byte of all streams, and PINGs. A checkpoint is a PING between DATA frames: its
 * answer says that the other process has read all DATA before it, and when.
 *
 * The bound follows the path, as BBR's does (Cardwell et al., 2016). A checkpoint's answer shows how fast the path delivers: what was unread
 * when it left, divided by how long the answer took. The bound is the fastest delivery times twice the path's own time: what waits takes no
 * longer than the path itself (or `queueMs`), and the bound can double in each round trip, as TCP's window does. While delivery gets faster,
 * the bound is twice that: TCP's window grows only while it is full, and in slow start bytes wait before they leave.
 *
 * Late answers alone are no reason for a lower bound: the path may have become longer, and then a lower bound would starve it. So the bound
 * falls only after a trial, a round with less under way than the path holds. What its answers take is the path's own time, and what they show
 * is the delivery. If that time is not as before, another trial with `inFlightLeastBytes` follows.
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
  /** When the last checkpoint was answered. */
  #idleSince = Number.POSITIVE_INFINITY;
  /** The fastest delivery since the last trial, and at the beginning of the round, in bytes per millisecond. */
  #delivery = 0;
  #deliveryBefore = 0;
  /** What an answer takes if nothing waits on the path, in milliseconds; 0 until it is known. */
  #path = 0;
  /** A round is over once this many bytes have been read. */
  #roundEnd = 0;
  /** The answers of the round, what they took together, in milliseconds, and the fastest delivery that they show. */
  #answers = 0;
  #took = 0;
  #best = 0;
  /** Whether one of them is of a time when the limit held something up. */
  #wasFull = false;
  /** Rounds in which delivery may stay the same before it no longer counts as getting faster; 0 once it does not. */
  #growing: number;
  #trial: Trial | undefined;
  #nextTrialAt = 0;

  constructor(pings: Pick<Pings, 'rtt'>, config: Config = WIRE) {
    this.#pings = pings;
    this.#config = config;
    this.#limit = config.inFlightFirstBytes;
    this.#growing = config.growthRounds;
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
   * be exceeded, because it falls. Never all at once: each part has its own checkpoint, whose answers come as fast as the path delivers.
   */
  get room(): number {
    const { inFlightLeastBytes, checkpoints } = this.#config;
    const bound = Math.floor(this.#bound());
    const room = Math.max(bound - (this.#sent - this.#read), this.#checkpointAt > this.#read ? 0 : inFlightLeastBytes);
    return Math.min(room, Math.max(inFlightLeastBytes / 4, Math.ceil(bound / checkpoints)));
  }

  #bound(): number {
    const { inFlightSharedBytes, inFlightAloneBytes, pathBytesPerMs } = this.#config;
    const most = (this.#shared ? inFlightSharedBytes : inFlightAloneBytes) + this.#path * pathBytesPerMs;
    return Math.min(this.#limit, most);
  }

  /** Counts bytes of DATA. @returns whether a checkpoint should follow them */
  send(bytes: number): boolean {
    if (this.#checkpointAt <= this.#read && performance.now() - this.#idleSince > this.#config.restartMs)
      this.#restart();
    this.#sent += bytes;
    return this.#sent - this.#checkpointAt >= this.#bound() / this.#config.checkpoints;
  }

  /** TCP begins anew after a rest, and the path may be another one. */
  #restart(): void {
    this.#limit = Math.min(this.#limit, this.#config.inFlightFirstBytes);
    this.#delivery = 0;
    this.#deliveryBefore = 0;
    this.#path = 0;
    this.#growing = this.#config.growthRounds;
    this.#trial = undefined;
  }

  /** A checkpoint leaves now. @returns what to call when it is answered, with the time that this took in milliseconds */
  checkpoint(): (took: number) => void {
    const at = this.#sent;
    const { unread } = this;
    const isFull = unread >= this.#bound() * (1 - 2 / this.#config.checkpoints);
    this.#checkpointAt = at;
    return (took) => {
      this.#read = at;
      if (at >= this.#checkpointAt) this.#idleSince = performance.now();
      this.#answers++;
      this.#took += took;
      if (isFull) this.#wasFull = true;
      this.#best = Math.max(this.#best, unread / took);
      if (this.#path === 0) this.#takes(Math.min(this.#pings.rtt || took, took));
      if (!this.#trial) this.#follow();
      if (at >= this.#roundEnd) this.#endRound();
    };
  }

  /** The path's own time is known, and need not be tried for a while. */
  #takes(path: number): void {
    const { trialEveryMs, trialEveryRounds } = this.#config;
    this.#path = path;
    this.#nextTrialAt = performance.now() + Math.max(trialEveryMs, trialEveryRounds * path);
  }

  /** How long answers shall take on a full link, in milliseconds. */
  get #intended(): number {
    return this.#path + Math.max(this.#path, this.#config.queueMs);
  }

  /** Raises the limit to what the delivery of this round allows. */
  #follow(): void {
    this.#delivery = Math.max(this.#delivery, this.#best);
    const holds = this.#delivery * this.#intended;
    this.#limit = this.#growing ? Math.max(this.#limit, 2 * holds) : Math.max(this.#config.inFlightLeastBytes, holds);
  }

  #endRound(): void {
    if (this.#trial) this.#try(this.#trial);
    else if (this.#wasFull) {
      const grew = this.#delivery > this.#config.growth * this.#deliveryBefore;
      this.#growing = grew ? this.#config.growthRounds : Math.max(0, this.#growing - 1);
      if (grew) this.#deliveryBefore = this.#delivery;
      const isLate = this.#best < this.#delivery / 2;
      if (!this.#growing && (isLate || performance.now() >= this.#nextTrialAt))
        this.#beginTrial(this.#config.trialShare);
    }
    this.#roundEnd = this.#sent;
    this.#answers = 0;
    this.#took = 0;
    this.#best = 0;
    this.#wasFull = false;
  }

  #beginTrial(share: number): void {
    const { inFlightLeastBytes } = this.#config;
    this.#limit = Math.max(inFlightLeastBytes, share * this.#delivery * this.#path);
    this.#trial = { rounds: 2, share };
  }

  #try(trial: Trial): void {
    if (--trial.rounds > 0) return;
    const { growth, growthRounds, inFlightLeastBytes } = this.#config;
    const path = this.#took / this.#answers;
    const differs = path > growth * this.#path || path < this.#path / growth;
    this.#takes(path);
    this.#trial = undefined;
    if (differs && this.#limit > inFlightLeastBytes) {
      this.#beginTrial(0);
      return;
    }
    this.#delivery = this.#best;
    this.#deliveryBefore = this.#best;
    this.#growing = differs || trial.share === 0 ? growthRounds : 0;
    this.#follow();
  }
}

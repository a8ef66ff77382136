import { Queue } from '@isthmus/runtime';
import type { InFlight } from '../in-flight.ts';

/** What a path is like. Times in milliseconds, sizes in bytes. */
export interface PathSettings {
  rtt: number;
  /** Bytes a millisecond. Default: no limit. */
  rate?: number;
  /** What may wait for the rate. More is lost. */
  queue?: number;
  /** The share of segments that are lost. */
  loss?: number;
  /** Each segment takes up to this much longer. */
  jitter?: number;
  /** How much longer answers take. */
  answers?: number;
}

const SEGMENT = 1448;
const STEP_MS = 1;
/** What kernels keep for a connection. */
const MOST = 16 * 1024 * 1024;
/** What a frame has, and what a write is too short for. */
const [FRAME, SHORTEST] = [16 * 1024, 1024];

interface Segment {
  readonly to: number;
  readonly bytes: number;
  readonly arrives: number;
}

interface Checkpoint {
  readonly at: number;
  readonly since: number;
  readonly done: (took: number) => void;
}

/**
 * A TCP connection on a path, whose sender asks an `InFlight` how much may leave. It begins with ten segments, doubles what is under way in each
 * round trip while that is used, and halves it after a loss. What was lost arrives a round trip later, and what came behind it waits for it.
 */
export class SimulatedPath {
  now = 0;
  /** Bytes that the other side has read. */
  read = 0;
  /** Whether the sender has something to send. */
  sends = true;
  settings: PathSettings;
  readonly #random: () => number;
  #inFlight: InFlight | undefined;
  #written = 0;
  #left = 0;
  #window = 10 * SEGMENT;
  #slowStart = Number.POSITIVE_INFINITY;
  #underWay = 0;
  #most = 0;
  #free = 0;
  #arrived = 0;
  #answered = 0;
  #halvedUntil = 0;
  readonly #segments = new Queue<Segment>();
  readonly #acks = new Queue<Segment>();
  readonly #checkpoints = new Queue<Checkpoint>();

  constructor(settings: PathSettings, random: () => number) {
    this.settings = settings;
    this.#random = random;
  }

  /** What the sender asks. Without it, it fills the socket. */
  bound(inFlight: InFlight): this {
    this.#inFlight = inFlight;
    return this;
  }

  /** How long the next byte takes to the other side, in milliseconds, if the path stays as it is. */
  get delay(): number {
    const { rate = Number.POSITIVE_INFINITY, rtt } = this.settings;
    return rtt / 2 + (this.#written - this.read) / Math.min(rate, this.#window / rtt);
  }

  /** Bytes that were written and not read. */
  get unread(): number {
    return this.#written - this.read;
  }

  /** Lets this much time pass. @returns bytes that were read, per millisecond */
  run(ms: number): number {
    const [until, before] = [this.now + ms, this.read];
    for (; this.now < until; this.now += STEP_MS) this.#step();
    return (this.read - before) / ms;
  }

  #step(): void {
    for (let next = this.#segments.first; next && next.arrives <= this.now; next = this.#segments.first) {
      this.#segments.shift();
      this.read = next.to;
      const back = this.settings.rtt / 2 + (this.settings.answers ?? 0);
      this.#answered = Math.max(this.now + back, this.#answered);
      this.#acks.push({ ...next, arrives: this.#answered });
    }
    for (let next = this.#acks.first; next && next.arrives <= this.now; next = this.#acks.first) {
      this.#acks.shift();
      this.#acknowledged(next);
    }
    if (this.sends) this.#write();
    this.#transmit();
  }

  #acknowledged({ to, bytes }: Segment): void {
    this.#underWay -= bytes;
    if (this.#window < this.#slowStart) {
      if (this.#window < Math.min(2 * this.#most, MOST)) this.#window += bytes;
    } else if (this.#window <= this.#most + SEGMENT) this.#window += (SEGMENT * bytes) / this.#window;
    this.#most = Math.max(this.#underWay, this.#most * (1 - bytes / (2 * this.#window)));
    for (let next = this.#checkpoints.first; next && next.at <= to; next = this.#checkpoints.first) {
      this.#checkpoints.shift();
      next.done(this.now - next.since);
    }
  }

  #write(): void {
    const inFlight = this.#inFlight;
    if (!inFlight) {
      this.#written = Math.max(this.#written, this.#left + FRAME);
      return;
    }
    for (let { room } = inFlight; room > SHORTEST; { room } = inFlight) {
      const bytes = Math.min(FRAME, room);
      this.#written += bytes;
      if (inFlight.send(bytes)) {
        this.#checkpoints.push({ at: this.#written, since: this.now, done: inFlight.checkpoint() });
      }
    }
  }

  #transmit(): void {
    const {
      rtt,
      rate = Number.POSITIVE_INFINITY,
      queue = Number.POSITIVE_INFINITY,
      loss = 0,
      jitter = 0,
    } = this.settings;
    for (; this.#left < this.#written; ) {
      const bytes = Math.min(SEGMENT, this.#written - this.#left);
      if (this.#underWay + bytes > this.#window) return;
      this.#left += bytes;
      this.#underWay += bytes;
      this.#most = Math.max(this.#most, this.#underWay);
      this.#free = Math.max(this.#free, this.now);
      const isLost = (this.#free - this.now) * rate > queue || this.#random() < loss;
      if (!isLost) this.#free += bytes / rate;
      else this.#halve();
      const arrives = this.#free + rtt / 2 + this.#random() * jitter + (isLost ? rtt : 0);
      this.#arrived = Math.max(this.#arrived, arrives);
      this.#segments.push({ to: this.#left, bytes, arrives: this.#arrived });
      // An unbounded sender keeps the socket full.
      if (!this.#inFlight && this.sends) this.#written = this.#left + FRAME;
    }
  }

  /** Once a round trip, as TCP does. */
  #halve(): void {
    if (this.now < this.#halvedUntil) return;
    this.#halvedUntil = this.now + this.settings.rtt;
    this.#window = Math.max(2 * SEGMENT, this.#window / 2);
    this.#slowStart = this.#window;
  }
}

/** A sequence of numbers from 0 to 1 that looks random, and is the same each time (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

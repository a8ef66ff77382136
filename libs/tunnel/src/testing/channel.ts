import type { Clock } from '@isthmus/runtime';
import type { Carrier, Loss, StreamUser } from '../resume/carrier.ts';

/** How long a frame is under way at most, and how late an end learns of a cut, in milliseconds. */
const LATENCY = 40;
const NOTICED = 2000;

/**
 * A stream through a hub: two ends, between which frames travel in order until it is cut. With the gateway's half at `isthmus hold`, it
 * also runs through a gateway, which may die.
 */
export class Channel {
  readonly gateway: ChannelEnd;
  readonly agent: ChannelEnd;
  readonly time: SeededTime;
  /** Whether it runs through a gateway. */
  readonly throughGateway: boolean;
  cutOff = false;
  gatewayDied = false;
  /** Nothing arrives before this time. */
  hangsUntil = 0;

  constructor(time: SeededTime, throughGateway = false) {
    this.time = time;
    this.throughGateway = throughGateway;
    this.gateway = new ChannelEnd(this);
    this.agent = new ChannelEnd(this);
    this.gateway.other = this.agent;
    this.agent.other = this.gateway;
  }

  /** What is under way is lost. Each end learns of it in its own time. */
  cut(): void {
    if (this.cutOff) return;
    this.cutOff = true;
    this.#lose(this.gateway);
    this.#lose(this.agent);
  }

  /** The gateway dies. What it had not passed on is lost; what it had goes on, also to an end whose other half has another channel by then. */
  killGateway(): void {
    if (this.cutOff || this.gatewayDied) return;
    this.gatewayDied = true;
    this.#lose(this.gateway);
    this.#lose(this.agent);
  }

  #lose(end: ChannelEnd): void {
    const { time } = this;
    time.after(time.chance(0.5) ? 0 : time.below(NOTICED), () =>
      end.close({ ends: false, reason: new Error('the link was cut') }),
    );
  }
}

/** Called at the other end. */
type Arrival = (other: ChannelEnd) => void;

/** A carrier, and its stream. */
class ChannelEnd implements Carrier {
  readonly stream = this;
  other!: ChannelEnd;
  listener: StreamUser | undefined;
  /** Stands between this end and its half. */
  heard: (half: StreamUser) => StreamUser = (half) => half;
  readonly channel: Channel;
  #closed = false;
  #loss: Loss | undefined;
  /** Bytes that have not left. */
  #waiting = 0;
  readonly #underWay: Arrival[] = [];
  /** Those that the gateway has passed on. */
  readonly #passedOn: Arrival[] = [];

  constructor(channel: Channel) {
    this.channel = channel;
  }

  deliverTo(half: StreamUser): void {
    this.listener = this.heard(half);
  }

  write(bytes: Uint8Array): void {
    const { time } = this.channel;
    // In pieces, so that a cut can fall between any two bytes.
    for (let begin = 0; begin < bytes.length; ) {
      const end = time.chance(0.7) ? bytes.length : begin + 1 + time.below(bytes.length - begin);
      const piece = bytes.subarray(begin, end);
      this.send((other) => other.listener?.onData(piece));
      begin = end;
    }
    this.#waiting += bytes.length;
    time.after(time.below(LATENCY), () => this.#leave(bytes.length));
  }

  get pending(): number {
    return this.#waiting;
  }

  awaitTurn(next: { writeMore(): void }): void {
    // A link that has gone asks nobody any more.
    const { time } = this.channel;
    time.after(time.below(LATENCY), () => this.#closed || this.channel.cutOff || next.writeMore());
  }

  /** As often as not, the window is enlarged. */
  consume(): boolean {
    return this.channel.time.chance(0.5);
  }

  #leave(bytes: number): void {
    this.#waiting -= bytes;
    if (this.#waiting === 0 && !this.#closed) this.listener?.onWritable();
  }

  mark(payload: Uint8Array): void {
    this.send((other) => other.listener?.onMark(payload));
  }

  endLate(last?: Uint8Array): void {
    if (last) this.mark(last);
    this.send((other) => other.listener?.onEnd());
  }

  drop(reason?: Error): void {
    this.#closed = true;
    const loss = { ends: reason !== undefined, reason: reason ?? new Error('the stream was dropped') };
    this.send((other) => other.close(loss));
  }

  close(loss: Loss): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#loss = loss;
    this.listener?.onClose(0, undefined);
  }

  closed(): Loss | undefined {
    return this.#loss;
  }

  send(arrive: Arrival): void {
    const { channel } = this;
    const { time, throughGateway } = channel;
    if (channel.cutOff || channel.gatewayDied) return;
    this.#underWay.push(arrive);
    time.after(time.below(LATENCY), () => (throughGateway ? this.#passOn() : this.#deliver(this.#underWay)));
  }

  #passOn(): void {
    const { time, gatewayDied } = this.channel;
    const first = gatewayDied ? undefined : this.#underWay.shift();
    if (!first) return;
    this.#passedOn.push(first);
    time.after(time.below(LATENCY), () => this.#deliver(this.#passedOn));
  }

  /** One that comes early brings the first of those under way: they keep their order. */
  #deliver(arrivals: Arrival[]): void {
    const { channel, other } = this;
    const { time } = channel;
    if (channel.cutOff || other.#closed) return;
    if (channel.hangsUntil > time.now()) time.after(channel.hangsUntil - time.now(), () => this.#deliver(arrivals));
    else arrivals.shift()?.(other);
  }
}

interface Due {
  readonly at: number;
  readonly order: number;
  run: (() => void) | undefined;
}

/** A clock that runs its callbacks one after another, without waiting. Its random numbers come from a seed. */
export class SeededTime implements Clock {
  #now = 0;
  #seed: number;
  #order = 0;
  /** A heap: each entry is due no later than the two below it. */
  readonly #heap: Due[] = [];

  /** @param seed 1 to 2^31 - 2 */
  constructor(seed: number) {
    this.#seed = seed;
    // Neighbouring seeds begin alike.
    for (let i = 0; i < 5; i++) this.random();
  }

  readonly now = () => this.#now;

  /** Lehmer's generator with the multiplier of Park and Miller. */
  readonly random = () => {
    this.#seed = (this.#seed * 48_271) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  };

  /** A whole number from 0, below `end`. */
  below(end: number): number {
    return Math.floor(this.random() * end);
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  after(ms: number, run: () => void): () => void {
    const due: Due = { at: this.#now + ms, order: this.#order++, run };
    this.#push(due);
    return () => {
      due.run = undefined;
    };
  }

  /** Runs until nothing is due any more, or until a time. @returns whether nothing is due */
  run(until: number): boolean {
    for (let next = this.#heap[0]; next; next = this.#heap[0]) {
      if (next.at > until) return false;
      this.#pop();
      this.#now = next.at;
      next.run?.();
    }
    return true;
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let index = heap.push(due) - 1;
    for (let above = (index - 1) >> 1; index > 0 && earlier(due, heap[above] as Due); above = (index - 1) >> 1) {
      heap[index] = heap[above] as Due;
      heap[above] = due;
      index = above;
    }
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Due;
    if (heap.length === 0) return;
    heap[0] = last;
    for (let index = 0; ; ) {
      const [left, right] = [2 * index + 1, 2 * index + 2];
      if (left >= heap.length) return;
      const below = right < heap.length && earlier(heap[right] as Due, heap[left] as Due) ? right : left;
      if (earlier(last, heap[below] as Due)) return;
      heap[index] = heap[below] as Due;
      heap[below] = last;
      index = below;
    }
  }
}

function earlier(one: Due, other: Due): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}

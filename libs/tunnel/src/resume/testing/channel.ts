import type { Carrier, CarrierUser, Mark } from '../carrier.ts';
import type { SeededTime } from './seeded-time.ts';

/** How long a frame is under way at most, and how late an end learns of a cut, in milliseconds. */
const LATENCY = 40;
const NOTICED = 2000;

/** A stream through a hub: two ends, between which frames travel in order until it is cut. */
export class Channel {
  readonly gateway: ChannelEnd;
  readonly agent: ChannelEnd;
  readonly time: SeededTime;
  cutOff = false;
  /** Nothing arrives before this time. */
  hangsUntil = 0;

  constructor(time: SeededTime) {
    this.time = time;
    this.gateway = new ChannelEnd(this);
    this.agent = new ChannelEnd(this);
    this.gateway.other = this.agent;
    this.agent.other = this.gateway;
  }

  /** What is under way is lost. Each end learns of it in its own time. */
  cut(): void {
    if (this.cutOff) return;
    this.cutOff = true;
    const { time } = this;
    for (const end of [this.gateway, this.agent])
      time.after(time.chance(0.5) ? 0 : time.below(NOTICED), () => end.close('lost', new Error('the link was cut')));
  }
}

export class ChannelEnd implements Carrier {
  other!: ChannelEnd;
  listener: CarrierUser | undefined;
  /** Stands between this end and its half. */
  heard: (half: CarrierUser) => CarrierUser = (half) => half;
  readonly channel: Channel;
  #closed = false;
  /** Bytes that have not left. */
  #waiting = 0;
  readonly #underWay: ((other: ChannelEnd) => void)[] = [];

  constructor(channel: Channel) {
    this.channel = channel;
  }

  deliverTo(user: CarrierUser): void {
    this.listener = this.heard(user);
  }

  data(bytes: Uint8Array): void {
    const { time } = this.channel;
    // In pieces, so that a cut can fall between any two bytes.
    for (let begin = 0; begin < bytes.length; ) {
      const end = time.chance(0.7) ? bytes.length : begin + 1 + time.below(bytes.length - begin);
      const piece = bytes.subarray(begin, end);
      this.send((other) => other.listener?.data(other, piece));
      begin = end;
    }
    this.#waiting += bytes.length;
    time.after(time.below(LATENCY), () => this.#leave(bytes.length));
  }

  get flowing(): boolean {
    return this.#waiting === 0;
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
    if (this.#waiting === 0 && !this.#closed) this.listener?.flowing(this);
  }

  mark(mark: Mark): void {
    this.send((other) => other.listener?.mark(other, mark));
  }

  end(last?: Mark): void {
    if (last) this.mark(last);
    this.send((other) => other.listener?.ended(other));
  }

  drop(): void {
    this.#closed = true;
    this.send((other) => other.close('lost', new Error('the stream was dropped')));
  }

  abort(reason: Error): void {
    this.#closed = true;
    this.send((other) => other.close('aborted', reason));
  }

  close(how: 'lost' | 'aborted', reason: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.listener?.[how](this, reason);
  }

  /** @param arrive called at the other end */
  send(arrive: (other: ChannelEnd) => void): void {
    const { channel } = this;
    const { time } = channel;
    if (channel.cutOff) return;
    this.#underWay.push(arrive);
    time.after(time.below(LATENCY), () => this.#deliver());
  }

  /** One that comes early brings the first of those under way: they keep their order. */
  #deliver(): void {
    const { channel, other } = this;
    const { time } = channel;
    if (channel.cutOff || other.#closed) return;
    if (channel.hangsUntil > time.now()) time.after(channel.hangsUntil - time.now(), () => this.#deliver());
    else this.#underWay.shift()?.(other);
  }
}

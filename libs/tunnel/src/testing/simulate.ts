import { SharedBudget } from '@isthmus/runtime';
import type { EndUser } from '../end.ts';
import { AgentTunnel } from '../resume/agent-tunnels.ts';
import { type AttachAnswer, type AttachPosition, AttachRefused, type StreamUser } from '../resume/carrier.ts';
import { GatewayHalf } from '../resume/gateway-tunnels.ts';
import type { Half } from '../resume/half.ts';
import { type Halves, halvesOf } from '../resume/halves.ts';
import { Channel, SeededTime } from './channel.ts';

/** How long the gateway waits for the answer to an attach, in milliseconds. */
const ANSWER_WITHIN = 3000;

/** Every schedule ends before this, in milliseconds. */
const ENDS_BEFORE = 30 * 60_000;

/** What a schedule came to. */
export interface Simulated {
  /** What should not have happened; empty for a schedule that went well. */
  readonly faults: readonly string[];
  readonly attaches: number;
  readonly cuts: number;
  /** Gateways that died between a half at `isthmus hold` and the agent. */
  readonly gatewaysKilled: number;
  /** How each party's tunnel ended: `clean`, or the error's text. */
  readonly outcomes: readonly [gateway: string, agent: string];
}

/**
 * Lets two halves carry a tunnel over channels that are cut between any two bytes, hang, and lose or double attaches, while their parties
 * write, read, half-close and sometimes fail. In half of the schedules the gateway's half is at `isthmus hold`: channels and attaches then
 * run through a gateway, which may die and come back. One seed is one schedule.
 */
export function simulate(seed: number): Simulated {
  return new Schedule(new SeededTime(seed)).run();
}

class Schedule {
  readonly #time: SeededTime;
  /** What a tunnel may keep in any case, and the most of one write. */
  readonly #limit: number;
  readonly #budget: SharedBudget;
  readonly #budgetBytes: number;
  readonly #timeoutMs: number;
  /** How likely an attach goes wrong in some way. */
  readonly #trouble: number;
  readonly #parties: readonly [gateway: Party, agent: Party];
  readonly #gateway: SimulatedGateway;
  readonly #agent: SimulatedAgent;
  /** When each half last heard of the other, in milliseconds. */
  readonly #heard = { gateway: 0, agent: 0 };
  #channel: Channel;
  /** Whether the gateway's half is at `isthmus hold`. */
  readonly #atHold: boolean;
  /** All that run through the gateway that lives now. Empty unless `#atHold`. */
  readonly #throughGateway: Channel[] = [];
  #gatewaysKilled = 0;
  /** Until when no attach reaches the agent. */
  #hubsBackAt = 0;
  #attaches = 0;
  #cuts = 0;
  /** Whether a socket failed, or the halves were apart for too long: the tunnel may end early. */
  #mayFail = false;
  readonly #faults: string[] = [];

  constructor(time: SeededTime) {
    this.#time = time;
    this.#limit = [100, 4096, 65_536][time.below(3)] as number;
    this.#timeoutMs = 15_000;
    this.#trouble = time.chance(0.5) ? 0 : 0.6 * time.random();
    this.#atHold = time.chance(0.5);
    const sends = () => (time.chance(0.2) ? 0 : time.below(8 * this.#limit));
    const party = (): PartyOptions => ({
      time,
      sends: sends(),
      mostAtOnce: this.#limit,
      pauseMs: 1 + time.below(time.chance(0.2) ? 2000 : 40),
    });
    this.#parties = [new Party(party()), new Party(party())];
    const most = 4 * this.#limit;
    const budgetBytes = time.below(2 * most);
    this.#budget = new SharedBudget(budgetBytes);
    const halves = () => halvesOf({ timeoutMs: this.#timeoutMs, budget: this.#budget }, time, this.#limit, most);
    this.#budgetBytes = budgetBytes;
    const [gateway, agent] = this.#parties;
    this.#gateway = new SimulatedGateway(halves(), gateway, (request) => this.#attach(request));
    this.#agent = new SimulatedAgent(halves(), agent);
    this.#channel = this.#newChannel();
    this.#gateway.start(this.#channel.gateway);
    this.#agent.start(this.#channel.agent);
    gateway.begin(this.#gateway);
    agent.begin(this.#agent);
  }

  run(): Simulated {
    const time = this.#time;
    for (let at = 0, left = time.below(12); left > 0; left--) {
      at += time.below(time.chance(0.8) ? 200 : 5000);
      time.after(at, () => this.#disturb());
    }
    if (time.chance(0.05)) {
      this.#mayFail = true;
      time.after(time.below(1000), () => this.#breakDown());
    }
    if (time.chance(0.1)) {
      this.#mayFail = true;
      const party = this.#parties[time.below(2)] as Party;
      time.after(time.below(10_000), () => party.fail());
    }
    const watch = () => {
      this.#checkMemory();
      if (this.#parties.some(({ outcome }) => outcome instanceof Error)) this.#checkSilence();
      if (this.#parties.some(({ isGone }) => !isGone)) time.after(50, watch);
    };
    watch();
    if (!time.run(ENDS_BEFORE)) this.#faults.push('it did not end');
    this.#checkEnd();
    const [gateway, agent] = this.#parties;
    const said = ({ outcome }: Party) => (outcome instanceof Error ? outcome.message : String(outcome));
    const faults = [...this.#faults, ...gateway.faults, ...agent.faults];
    const counts = { attaches: this.#attaches, cuts: this.#cuts, gatewaysKilled: this.#gatewaysKilled };
    return { faults, ...counts, outcomes: [said(gateway), said(agent)] };
  }

  #disturb(): void {
    const time = this.#time;
    const what = time.below(10);
    if (what < 3) this.#gateway.reattach();
    else if (what < 5) this.#channel.hangsUntil = time.now() + time.below(4000);
    else if (what < 8 && this.#atHold) this.#killGateway();
    else this.#cut(this.#channel);
  }

  /** All channels through it are lost at once, those of attaches too. As often as not, there is no other one for a while. */
  #killGateway(): void {
    const time = this.#time;
    this.#gatewaysKilled++;
    for (const channel of this.#throughGateway.splice(0)) channel.killGateway();
    if (time.chance(0.5)) this.#hubsBackAt = Math.max(this.#hubsBackAt, time.now() + time.below(4000));
  }

  /** For longer than a tunnel waits, there is no hub. */
  #breakDown(): void {
    this.#hubsBackAt = this.#time.now() + 2 * this.#timeoutMs;
    this.#cut(this.#channel);
  }

  #cut(channel: Channel): void {
    this.#cuts++;
    channel.cut();
  }

  /** Brings a request to the agent, and its answer back, if nothing goes wrong. */
  #attach(request: AttachPosition): void {
    const time = this.#time;
    this.#attaches++;
    const troubled = time.chance(this.#trouble);
    const way = troubled ? time.below(5) : -1;
    let answered = false;
    const once = (act: () => void) => {
      if (answered) return false;
      answered = true;
      act();
      return true;
    };
    const fail = (error: Error, final = false) => once(() => this.#gateway.attachFailed(request.number, error, final));
    time.after(ANSWER_WITHIN, () => fail(new Error('no answer')));
    // 0: there is no hub. 1: the request is late. 2: the answer is lost. 3: the request comes twice. 4: the channel is cut early.
    if (way === 0 || time.now() < this.#hubsBackAt) {
      time.after(time.below(200), () => fail(new Error('no hub')));
      return;
    }
    for (let times = way === 3 ? 2 : 1; times > 0; times--) {
      const channel = this.#newChannel();
      const late = way === 1 ? time.below(3 * ANSWER_WITHIN) : time.below(100);
      time.after(late, () => this.#arrive(channel, request, { once, fail, losesAnswer: way === 2 }));
      if (way === 4) time.after(late + time.below(100), () => this.#cut(channel));
    }
  }

  #arrive(
    channel: Channel,
    request: AttachPosition,
    { once, fail, losesAnswer }: { once: (act: () => void) => boolean; fail: Fail; losesAnswer: boolean },
  ): void {
    if (channel.cutOff || channel.gatewayDied) return;
    const { gateway, agent } = channel;
    try {
      this.#agent.attach(request, (answer: AttachAnswer) => {
        if (losesAnswer) this.#cut(channel);
        agent.send(() => {
          const taken = once(() => {
            this.#channel = channel;
            this.#gateway.attachedTo(request.number, gateway, answer);
          });
          // As a dial that was given up resets its stream.
          if (!taken) gateway.drop();
        });
        return agent;
      });
    } catch (error) {
      if (!(error instanceof AttachRefused)) throw error;
      this.#time.after(this.#time.below(50), () => fail(error, error.final));
    }
  }

  #newChannel(): Channel {
    const channel = new Channel(this.#time, this.#atHold);
    if (this.#atHold) this.#throughGateway.push(channel);
    channel.gateway.heard = (half) => this.#heardBy('gateway', half);
    channel.agent.heard = (half) => this.#heardBy('agent', half);
    return channel;
  }

  /** A half that heard nothing for long may give up. */
  #heardBy(which: 'gateway' | 'agent', half: StreamUser): StreamUser {
    const hear = () => {
      this.#checkSilence();
      this.#heard[which] = this.#time.now();
    };
    return {
      onData(bytes) {
        hear();
        half.onData(bytes);
      },
      onMark(payload) {
        hear();
        half.onMark(payload);
      },
      onWritable: () => half.onWritable(),
      onEnd: () => half.onEnd(),
      onClose: (code, reason) => half.onClose(code, reason),
    };
  }

  #checkSilence(): void {
    const { gateway, agent } = this.#heard;
    this.#mayFail ||= this.#time.now() - Math.min(gateway, agent) >= this.#timeoutMs;
  }

  #checkMemory(): void {
    for (const half of [this.#gateway, this.#agent]) {
      const most = 6 * this.#limit;
      if (half.kept > most) this.#faults.push(`it keeps ${half.kept} bytes, and may keep ${most}`);
      if (half.untaken > most) this.#faults.push(`it holds ${half.untaken} bytes, and may hold ${most}`);
    }
    const kept = this.#gateway.kept + this.#agent.kept;
    const most = 6 * this.#limit + this.#budgetBytes;
    if (kept > most) this.#faults.push(`both keep ${kept} bytes, and may keep ${most}`);
  }

  #checkEnd(): void {
    if (this.#parties.some(({ isGone }) => !isGone)) this.#faults.push('a half stays');
    if (this.#budget.left !== this.#budgetBytes) this.#faults.push('memory was not given back');
    const outcomes = this.#parties.map(({ outcome }) => outcome);
    if (outcomes.includes(undefined)) this.#faults.push('a party was not told of the end');
    const clean = outcomes.filter((outcome) => outcome === 'clean').length;
    const [gateway, agent] = this.#parties;
    for (const [party, other] of [this.#parties, [agent, gateway]] as const) {
      // However the tunnel ended later: by then a user has taken the bytes for all.
      if (party.sawEnd && !(other.finished && party.read === other.sends))
        this.#faults.push(`it saw an end after ${party.read} of ${other.sends} bytes`);
      if (party.outcome !== 'clean') continue;
      if (!party.finished || !party.sawEnd) this.#faults.push('it is over, and a party has not ended');
      if (party.read !== other.sends || other.read !== party.sends)
        this.#faults.push(`it is over, with ${party.read} of ${other.sends} and ${other.read} of ${party.sends} bytes`);
    }
    if (clean < 2 && !this.#mayFail) this.#faults.push(`it ended as ${outcomes.join(' and ')}`);
  }
}

type Fail = (error: Error, final?: boolean) => void;

/** Longer than any write, and no power of two, so that bytes at wrong positions differ. */
const PATTERN = Buffer.from(Array.from({ length: 65_521 }, (_, at) => (at * 40_503) >>> 7));

interface PartyOptions {
  readonly time: SeededTime;
  /** How much it sends, in bytes, and the most at once. */
  readonly sends: number;
  readonly mostAtOnce: number;
  /** The longest time between two of its writes, and of its reads, in milliseconds. */
  readonly pauseMs: number;
}

/** A socket: it writes and reads at its own pace, and checks what it reads. */
class Party implements EndUser {
  readonly #options: PartyOptions;
  #half: Half | undefined;
  #sent = 0;
  #read = 0;
  #waits = false;
  #sees = false;
  /** Whether it has ended its own direction, and seen the end of the other's. */
  finished = false;
  /** Unset until the tunnel is over; then its error, or `clean`. */
  outcome: Error | 'clean' | undefined;
  /** Whether its half is gone. */
  isGone = false;
  /** What must never happen. */
  readonly faults: string[] = [];

  constructor(options: PartyOptions) {
    this.#options = options;
  }

  get sends(): number {
    return this.#options.sends;
  }

  /** Bytes that it has read. */
  get read(): number {
    return this.#read;
  }

  get sawEnd(): boolean {
    return this.#sees;
  }

  begin(half: Half): void {
    this.#half = half;
    half.use(this);
    half.whenFinished(() => {
      if (!this.finished) this.faults.push('its end arrived before it ended');
    });
    this.#later(() => this.#write());
  }

  onData(bytes: Uint8Array): void {
    const half = this.#half as Half;
    if (this.outcome) this.faults.push('it got bytes after the end of the tunnel');
    if (this.#sees) this.faults.push('it got bytes after the end of the other side');
    if (!sameAt(this.#read, bytes)) this.faults.push(`wrong bytes at ${this.#read}`);
    this.#read += bytes.length;
    // As a socket does whose buffer has no room.
    if (this.#options.time.chance(0.3)) return;
    half.pause();
    this.#later(() => half.resume());
  }

  onEnd(): void {
    if (this.#sees) this.faults.push('it saw the end twice');
    this.#sees = true;
  }

  onDrain(): void {
    if (!this.#waits) this.faults.push('it was told of room that it had');
    this.#waits = false;
    this.#later(() => this.#write());
  }

  onClose(failure?: Error): void {
    if (this.outcome) this.faults.push('it was told twice that the tunnel is over');
    this.outcome = failure ?? 'clean';
  }

  gone(): void {
    if (this.isGone) this.faults.push('its half went twice');
    this.isGone = true;
  }

  /** Its socket fails. */
  fail(): void {
    if (!this.outcome) this.#half?.abort(new Error('the socket failed'));
  }

  #write(): void {
    const { time, sends, mostAtOnce } = this.#options;
    const half = this.#half as Half;
    if (this.outcome) return;
    if (this.#sent === sends) {
      this.finished = true;
      half.finish();
      return;
    }
    const length = Math.min(sends - this.#sent, 1 + time.below(mostAtOnce));
    this.#waits = !half.write(pattern(this.#sent, length));
    this.#sent += length;
    if (!this.#waits) this.#later(() => this.#write());
  }

  #later(act: () => void): void {
    const { time, pauseMs } = this.#options;
    time.after(time.below(pauseMs), act);
  }
}

/** A caller's half, which asks for new carriers. */
class SimulatedGateway extends GatewayHalf {
  readonly tenant = 'acme';
  readonly #party: Party;
  readonly #asks: (request: AttachPosition) => void;

  /** Bytes that have arrived and were not taken. */
  get untaken(): number {
    return this.received - this.taken;
  }

  constructor(halves: Halves, party: Party, asks: (request: AttachPosition) => void) {
    super(halves);
    this.#party = party;
    this.#asks = asks;
  }

  protected override attach(request: AttachPosition): void {
    this.#asks(request);
  }

  protected override gone(): void {
    this.#party.gone();
  }
}

class SimulatedAgent extends AgentTunnel {
  readonly #party: Party;

  /** Bytes that have arrived and were not taken. */
  get untaken(): number {
    return this.received - this.taken;
  }

  constructor(halves: Halves, party: Party) {
    super({ tenant: 'acme', destination: { host: 'x', port: 1 } }, '', halves, () => {});
    this.#party = party;
  }

  protected override gone(): void {
    this.#party.gone();
  }
}

function pattern(position: number, length: number): Buffer {
  const at = position % PATTERN.length;
  const piece = PATTERN.subarray(at, at + length);
  return piece.length === length ? piece : Buffer.concat([piece, pattern(0, length - piece.length)]);
}

function sameAt(position: number, bytes: Uint8Array): boolean {
  return Buffer.compare(pattern(position, bytes.length), bytes) === 0;
}

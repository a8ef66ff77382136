import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { SharedBudget, systemClock } from '@isthmus/runtime';
import { FakeClock } from '@isthmus/runtime/testing';
import { ByteMeter, type EndUser, type TunnelEnd } from '@isthmus/tunnel';
import { DEFAULT_LIMITS } from '@isthmus/tunnel/limits';
import { AgentTunnel, GatewayHalf, halvesOf, joined } from '@isthmus/tunnel/testing';
import { encodeHead, Http2Link, type Http2Stream } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { type CarrierLink, StreamEnd } from './tunnel-end.ts';

const KIB = 1024;
const SCHEDULES = 8;
/** Nothing has moved for so long: what waits, waits for ever. The slowest thing here is a mark that nobody asked for, after 250 ms. */
const STILL_MS = 3000;
const HEAD = { ':method': 'CONNECT', ':authority': 'h:1' };

/** One end of a connection. What is written arrives at the other one a little later, in pieces. */
class Wire extends Duplex {
  other!: Wire;
  readonly #luck: Luck;
  #arriving: { bytes: Buffer; done: () => void } | undefined;
  #wanted = true;

  constructor(luck: Luck) {
    super({ allowHalfOpen: true, highWaterMark: KIB * (1 + luck.below(64)) });
    this.#luck = luck;
  }

  override _write(bytes: Buffer, _encoding: string, done: () => void): void {
    this.other.#arriving = { bytes, done };
    this.other.#soon();
  }

  override _read(): void {
    this.#wanted = true;
    this.#soon();
  }

  override _final(done: () => void): void {
    this.other.push(null);
    done();
  }

  override _destroy(_error: Error | null, done: () => void): void {
    this.other.push(null);
    done();
  }

  #soon(): void {
    if (this.#luck.chance(0.3)) this.#arrive();
    else setImmediate(() => this.#arrive());
  }

  #arrive(): void {
    const { bytes, done } = this.#arriving ?? {};
    if (!bytes || !done || !this.#wanted || this.destroyed) return;
    const length = this.#luck.chance(0.5) ? bytes.length : 1 + this.#luck.below(bytes.length);
    this.#arriving = length < bytes.length ? { bytes: bytes.subarray(length), done } : undefined;
    this.#wanted = this.push(bytes.subarray(0, length));
    if (this.#arriving) this.#soon();
    else done();
  }
}

class Luck {
  readonly #clock: FakeClock;

  constructor(seed: number) {
    this.#clock = new FakeClock(seed);
    // Neighbouring seeds begin alike.
    for (let i = 0; i < 5; i++) this.#clock.random();
  }

  /** A whole number from 0, below `end`. */
  below(end: number): number {
    return Math.floor(this.#clock.random() * end);
  }

  chance(probability: number): boolean {
    return this.#clock.random() < probability;
  }
}

/** A link whose windows and bounds are as small as a process with little memory has them, or smaller. */
function linked(luck: Luck): readonly [client: Http2Link, server: Http2Link] {
  const [near, far] = [new Wire(luck), new Wire(luck)];
  near.other = far;
  far.other = near;
  const side = (role: 'client' | 'server', socket: Wire) =>
    new Http2Link({
      role,
      socket: socket as unknown as Socket,
      config: {
        windowBytes: 2 * KIB * (1 + luck.below(32)),
        inFlightSharedBytes: 32 * KIB * (1 + luck.below(8)),
        inFlightAloneBytes: 512 * KIB,
        pathBytesPerMs: KIB,
        readATickBytes: 64 * KIB,
      },
      rules: {
        groupField: 'tenant',
        growth: {
          budget: new SharedBudget(luck.below(256 * KIB)),
          local: new SharedBudget(luck.below(256 * KIB)),
          largest: 128 * KIB,
        },
      },
    });
  const both = [side('client', near), side('server', far)] as const;
  cleanups.push(() => {
    for (const link of both) link.destroy(new Error('test over'));
  });
  return both;
}

/** What is joined to a half: it writes as fast as it may, and reads in fits and starts. */
class Party implements EndUser {
  read = 0;
  cut: Error | undefined;
  readonly sends: number;
  #left: number;
  readonly #half: TunnelEnd;
  readonly #luck: Luck;
  readonly #slow: boolean;

  constructor(half: TunnelEnd, luck: Luck) {
    this.#half = half;
    this.#luck = luck;
    this.sends = luck.chance(0.2) ? 0 : luck.below(400 * KIB);
    this.#left = this.sends;
    this.#slow = luck.chance(0.3);
    half.use(this, 'acme');
    setImmediate(() => this.onDrain());
  }

  onData({ length }: Uint8Array): void {
    this.read += length;
    if (!this.#slow && this.#luck.chance(0.7)) return;
    this.#half.pause();
    this.#later(() => this.#half.resume());
  }

  onDrain(): void {
    while (this.#left > 0) {
      const length = Math.min(this.#left, 1 + this.#luck.below(64 * KIB));
      this.#left -= length;
      if (!this.#half.write(Buffer.alloc(length))) return;
    }
  }

  onEnd(): void {}

  onClose(failure?: Error): void {
    this.cut = failure;
  }

  #later(act: () => void): void {
    if (this.#slow && this.#luck.chance(0.2)) setTimeout(act, this.#luck.below(10));
    else setImmediate(act);
  }
}

class CallerHalf extends GatewayHalf {
  readonly tenant = 'acme';
  protected override attach(): void {}
  protected override gone(): void {}
}

const linkTo = (far: CarrierLink['far']): CarrierLink => ({ peer: 'peer', far, closed() {} });
const answered = (stream: Http2Stream) => stream.answer(encodeHead({ ':status': 200 }));

function endAt(stream: Http2Stream, far: CarrierLink['far'], halfAtPeer: boolean, headed = () => {}): StreamEnd {
  const end = new StreamEnd(stream, linkTo(far), { closed() {}, headed });
  end.halfAtPeer = halfAtPeer;
  return end;
}

/** Tunnels from a gateway's halves through a hub to an agent's, each with bytes both ways. */
function tunnels(luck: Luck): { readonly parties: readonly Party[]; readonly count: number } {
  const [gateway, hubServing] = linked(luck);
  const [hubDialling, agent] = linked(luck);
  const halves = () => {
    const budget = new SharedBudget(luck.below(512 * KIB));
    return halvesOf({ timeoutMs: 100, budget }, systemClock, 4 * KIB * (1 + luck.below(16)), 256 * KIB);
  };
  const bytesQueued = 16 * KIB * (1 + luck.below(64));
  const meter = luck.chance(0.5) ? new ByteMeter('acme', () => ({ ...DEFAULT_LIMITS, bytesQueued })) : undefined;
  const [atGateway, atAgent] = [halves(), halves()];
  const parties: Party[] = [];
  hubServing.on('begun', (stream, head) => {
    const caller = endAt(stream, 'caller', true);
    const destination = endAt(hubDialling.begin(head), 'destination', true);
    answered(stream);
    joined(caller, destination, meter, 'hub');
  });
  agent.on('begun', (stream) => {
    const end = endAt(stream, 'caller', false);
    answered(stream);
    const half = new AgentTunnel({ tenant: 'acme', destination: { host: 'h', port: 1 } }, '', atAgent, () => {});
    half.start(end);
    parties.push(new Party(half, luck));
  });
  const groups = 1 + luck.below(3);
  const count = 2 + luck.below(60);
  for (let left = count; left > 0; left--) {
    const end = endAt(gateway.begin({ ...HEAD, tenant: `${luck.below(groups)}` }), 'destination', false, () => {
      const half = new CallerHalf(atGateway);
      half.start(end);
      parties.push(new Party(half, luck));
    });
  }
  return { parties, count };
}

test('whatever windows, memory and turns hold back of tunnels on a link is given back, and all their bytes arrive', async () => {
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const { parties, count } = tunnels(new Luck(seed));
    const sum = (of: (party: Party) => number) => parties.reduce((total, party) => total + of(party), 0);
    let [last, at] = [-1, performance.now()];
    while (parties.length < 2 * count || sum(({ read }) => read) < sum(({ sends }) => sends)) {
      await new Promise(setImmediate);
      const read = sum((party) => party.read);
      if (read !== last) [last, at] = [read, performance.now()];
      assert.deepEqual(parties.map(({ cut }) => cut).filter(Boolean), [], `seed ${seed}: tunnels were cut`);
      const still = performance.now() - at > STILL_MS;
      assert.ok(!still, `seed ${seed}: after ${read} of ${sum(({ sends }) => sends)} bytes nothing moves any more`);
    }
    for (const cleanup of cleanups.splice(0)) cleanup();
  }
});

import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { afterEach, describe, mock, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { guarding, type UnsentBound } from '@isthmus/runtime';
import { FakeClock } from '@isthmus/runtime/testing';
import { WIRE } from '../defaults.ts';
import { DEFAULT_SETTINGS } from './frames.ts';
import { Output, SendGroup } from './output.ts';
import { InFlight, Keepalive, Pings } from './pings.ts';

/** PINGs whose clock stands still until one is answered. */
function pings(t: { mock: { method: typeof import('node:test').mock.method } }) {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const traffic = { unread: 0, received: 0 };
  const all = new Pings({ unread: () => traffic.unread, received: () => traffic.received });
  /** A PING is answered after so many milliseconds. @param received bytes that come meanwhile */
  const answered = (ms: number, { unread = 0, received = 0, checkpoint = false } = {}) => {
    traffic.unread = unread;
    if (checkpoint) all.checkpoint(() => {});
    else all.begin();
    now += ms;
    traffic.received += received;
    all.answered();
    return all.rtt;
  };
  return { all, answered };
}

test('the round-trip time of a path that has become longer is known after two PINGs that waited for nothing', (t) => {
  const { answered } = pings(t);
  assert.deepEqual([answered(0.5), answered(100), answered(101)], [0.5, 0.625, 100]);
  assert.equal(answered(0.5), 0.5);
});

test('one late answer of a process that is busy is no longer path', (t) => {
  const { answered } = pings(t);
  answered(1);
  answered(200);
  assert.ok(answered(1.5) <= 1.5);
  assert.ok(answered(200) < 3);
});

test('the time that PINGs wait behind bytes of either side is no round-trip time', (t) => {
  const { answered } = pings(t);
  answered(1);
  for (let i = 0; i < 3; i++) {
    answered(1000, { received: 100_000 });
    answered(1000, { unread: 100_000 });
  }
  const pinged = answered(1);
  assert.equal(pinged, 1);
  for (let i = 0; i < 100; i++) answered(1000, { unread: 100_000, checkpoint: true });
  assert.equal(answered(1000, { unread: 100_000, checkpoint: true }), 1);
});

test('sixteen PINGs may wait, and any number of checkpoints', (t) => {
  const { all } = pings(t);
  for (let i = 0; i < 16; i++) assert.equal(all.begin(), true);
  assert.equal(all.begin(), false);
  for (let i = 0; i < 20; i++) all.checkpoint(() => {});
  all.answered();
  assert.equal(all.begin(), true);
});

describe('keepalive', () => {
  afterEach(() => mock.timers.reset());

  /** In steps, since timers that begin within one would count from its end. */
  function pass(ms: number): void {
    for (let left = ms; left > 0; left -= 10_000) mock.timers.tick(10_000);
  }

  function watch(keepaliveMs: number) {
    mock.timers.enable({ apis: ['setTimeout'] });
    const said: string[] = [];
    const own = new Keepalive({
      config: WIRE,
      keepaliveMs,
      ping: () => void said.push('ping'),
      dead: (error) => void said.push(error.message),
      guarded: guarding(assert.ifError),
    });
    return { own, said };
  }

  test('a peer that sends no SETTINGS is given up', () => {
    const { own, said } = watch(60_000);
    own.awaitGreeting();
    pass(10_000);
    assert.deepEqual(said, ['no SETTINGS within 10 s']);
  });

  test('a peer is pinged when it was silent, and given up when it stays so', () => {
    const { own, said } = watch(60_000);
    own.watch();
    for (let i = 0; i < 10; i++) {
      pass(60_000);
      own.heard = true;
    }
    assert.deepEqual(said, []);
    pass(120_000);
    assert.deepEqual(said, ['ping']);
    own.heard = true;
    pass(20_000 + 60_000);
    assert.deepEqual(said, ['ping'], 'what came was answer enough');
    pass(60_000);
    assert.deepEqual(said, ['ping', 'ping']);
    pass(20_000);
    assert.deepEqual(said, ['ping', 'ping', 'silent for 20 s, even after a PING']);
  });

  test('a keepalive longer than a timer pings nobody, and one that is stopped neither', () => {
    const { own, said } = watch(2 ** 40);
    own.watch();
    pass(1_000_000);
    own.stop();
    mock.timers.tick(2 ** 31);
    assert.deepEqual(said, []);
  });
});

const KIB = 1024;
const FRAME = Buffer.alloc(16 * KIB);

/** More than an output would send in that many ticks. */
const TICKS = 200;

const SCHEDULES = 40;

interface Bounds {
  readonly inFlight?: InFlight;
  readonly unsent?: Pick<UnsentBound, 'bytes' | 'follow'>;
  /** Default: the socket accepts everything at once, as a kernel with large buffers does. */
  readonly write?: (chunk: Buffer, encoding: string, done: () => void) => void;
}

/** An output, and streams that always have more. */
function busy({ inFlight, unsent, write = (_chunk, _encoding, done) => done() }: Bounds) {
  const checkpoints: (() => void)[] = [];
  const checkpoint = (read: () => void) => {
    checkpoints.push(read);
    return Buffer.from('checkpoint');
  };
  const output = new Output({
    socket: new Duplex({ read() {}, write }),
    greeting: Buffer.alloc(0),
    defer: setImmediate,
    config: { ...WIRE, backlogBytes: 2 ** 30 },
    inFlight,
    unsent,
    checkpoint,
    failed: (error) => assert.fail(error),
  });
  output.widen(2 ** 31 - 1 - DEFAULT_SETTINGS.initialWindowSize);
  const endless = (name: string) => ({
    offered: false,
    sendable: true,
    pending: 2 ** 20,
    group: new SendGroup(name),
    sent: 0,
    sendFrame(to: Output, limit: number) {
      const length = Math.min(limit, FRAME.length);
      to.add(FRAME.subarray(0, length));
      this.sent += length;
      return length;
    },
  });
  return { output, checkpoints, endless };
}

async function ticks(): Promise<void> {
  for (let left = TICKS; left > 0; left--) await tick();
}

test('a link has as much under way as a busy process and the path hold, more if nobody else waits', async () => {
  for (const [groups, rtt, kib] of [
    [1, 0, 4096],
    [2, 0, 512],
    [2, 50, 512 + 50 * 160],
  ] as const) {
    const inFlight = new InFlight({ rtt }, WIRE);
    const { output, endless, checkpoints } = busy({ inFlight });
    if (groups > 1) output.share();
    for (let group = 0; group < groups; group++) output.offer(endless(`flood ${group}`));
    for (let round = 0; round < 10; round++) {
      await ticks();
      const { unread } = inFlight;
      assert.ok(unread > (kib - 2) * KIB && unread <= kib * KIB, `${unread} bytes for ${groups} at ${rtt} ms`);
      for (const read of checkpoints.splice(0)) read();
    }
  }
});

test('a quiet group is next once the other side has read something', async () => {
  const { output, endless, checkpoints } = busy({ inFlight: new InFlight({ rtt: 1 }, WIRE) });
  output.share();
  const [flood, quiet] = [endless('flood'), endless('quiet')];
  output.offer(flood);
  await ticks();
  const before = flood.sent;
  output.offer(quiet);
  checkpoints.shift()?.();
  await ticks();
  assert.ok(quiet.sent > 0);
  assert.ok(quiet.sent >= flood.sent - before - FRAME.length, `${quiet.sent} and ${flood.sent - before} bytes`);
});

test('an output without a bound sends no checkpoints', async () => {
  const { output, checkpoints, endless } = busy({});
  const alone = endless('alone');
  output.offer(alone);
  await ticks();
  assert.ok(alone.sent > TICKS * 8 * KIB, `${alone.sent} bytes`);
  assert.deepEqual([checkpoints, output.hasRoom], [[], true]);
});

test('a bound that falls leaves room unless a checkpoint will end the wait', () => {
  const path = { rtt: 1000 };
  const inFlight = new InFlight(path, WIRE);
  let underWay: (() => void) | undefined;
  for (let sent = 0; sent < 100; sent++) if (inFlight.send(64 * KIB)) underWay = inFlight.checkpoint();
  const behind = inFlight.send(100 * KIB);
  inFlight.share();
  path.rtt = 0;
  assert.deepEqual([behind, inFlight.room], [false, 0]);
  underWay?.();
  assert.ok(inFlight.room > 300 * KIB, `${inFlight.room} bytes of room`);
  assert.equal(inFlight.send(1), true);
});

test('what the kernel does not take waits with the streams, and the next bytes leave when it has', async () => {
  const taken: (() => void)[] = [];
  const unsent = { bytes: 8 * KIB, follow: () => true };
  const write: Bounds['write'] = (_chunk, _encoding, done) => void taken.push(done);
  const { output, endless } = busy({ unsent, write });
  const flood = endless('flood');
  output.offer(flood);
  await ticks();
  assert.ok(flood.sent <= 8 * KIB && flood.sent > 6 * KIB, `${flood.sent} bytes wait with the kernel`);
  const small = { ...endless('small'), pending: 1 };
  output.offer(small);
  // A turn of the flood is two of these writes.
  for (let writes = 0; writes < 4; writes++) {
    for (const done of taken.splice(0)) done();
    await ticks();
  }
  assert.ok(small.sent > 0 && flood.sent > 8 * KIB, `${small.sent} and ${flood.sent} bytes`);
});

test('a path is asked how fast it is as bytes leave, soon also when it was fast', async () => {
  for (const kib of [8, 4096]) {
    let asked = 0;
    const unsent = { bytes: kib * KIB, follow: () => ++asked > 0 };
    const { output, endless } = busy({ unsent });
    const flood = endless('flood');
    output.offer(flood);
    await ticks();
    const every = Math.min(4 * unsent.bytes, WIRE.followBytes);
    assert.ok(
      asked >= flood.sent / (2 * every) && asked <= flood.sent / every,
      `${asked} times for ${flood.sent} bytes`,
    );
  }
});

/** A seeded schedule of what takes an output's room, and gives it back. */
class Trouble {
  readonly output: Output;
  readonly #clock: FakeClock;
  /** What the kernel, the path and the other side still hold back: each is given back in a later tick, in any order. */
  readonly #held: (() => void)[] = [];

  constructor(seed: number) {
    const clock = new FakeClock(seed);
    this.#clock = clock;
    const path = { rtt: 0 };
    const most = 4 * KIB * (1 + this.below(64));
    const unsent = {
      bytes: most,
      follow: () => {
        unsent.bytes = 2 * KIB + this.below(most);
        path.rtt = this.below(3);
        return true;
      },
    };
    const config = { ...WIRE, inFlightSharedBytes: 64 * KIB, inFlightAloneBytes: 256 * KIB, pathBytesPerMs: KIB };
    const hold = (done: () => void) => void this.#held.push(done);
    this.output = new Output({
      socket: new Duplex({
        highWaterMark: KIB * (1 + this.below(128)),
        read() {},
        write: (_chunk, _encoding, done) => (this.below(2) === 0 ? done() : hold(done)),
      }),
      greeting: Buffer.alloc(0),
      defer: setImmediate,
      config: { ...config, backlogBytes: 2 ** 30 },
      inFlight: new InFlight(path, config),
      ...(this.below(4) > 0 && { unsent }),
      checkpoint: (read) => {
        hold(read);
        return Buffer.from('checkpoint');
      },
      failed: (error) => assert.fail(error),
    });
    if (this.below(2) === 0) this.output.share();
  }

  below(end: number): number {
    return Math.floor(this.#clock.random() * end);
  }

  /** The other side gives a window of so many bytes back, some time. */
  later(act: () => void): void {
    this.#held.push(act);
  }

  /** Gives some of what is held back. @returns whether anything was */
  giveBack(): boolean {
    const holds = this.#held.length > 0;
    // In its order, as checkpoints are answered.
    for (let some = 1 + this.below(3); some > 0; some--) this.#held.shift()?.();
    return holds;
  }
}

/** A stream whose writer has so many bytes in all, and writes more when it is its turn. */
class Writer {
  offered = false;
  pending = 0;
  left: number;
  #window: number;
  readonly group: SendGroup;
  readonly #trouble: Trouble;

  constructor(trouble: Trouble, group: SendGroup) {
    this.#trouble = trouble;
    this.group = group;
    this.left = 1 + trouble.below(300 * KIB);
    this.#window = trouble.below(64 * KIB);
    this.writeMore();
    if (this.#window === 0) this.#widen();
  }

  get sendable(): boolean {
    return this.pending > 0 && this.#window > 0;
  }

  sendFrame(output: Output, limit: number): number {
    const length = Math.min(limit, this.pending, this.#window);
    output.add(FRAME.subarray(0, Math.min(length, FRAME.length)));
    this.pending -= length;
    this.#window -= length;
    this.#trouble.later(() => this.#trouble.output.widen(length));
    if (this.#window === 0) this.#widen();
    if (this.pending === 0 && this.left > 0) output.awaitTurn(this, this.group);
    return length;
  }

  writeMore(): void {
    const more = Math.min(this.left, 1 + this.#trouble.below(100 * KIB));
    this.left -= more;
    this.pending += more;
    if (this.sendable) this.#trouble.output.offer(this);
  }

  #widen(): void {
    const more = 1 + this.#trouble.below(64 * KIB);
    this.#trouble.later(() => {
      this.#window += more;
      if (this.sendable) this.#trouble.output.offer(this);
    });
  }
}

test('whatever takes room from a link, and in whichever order it comes back, all that was written leaves', async () => {
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const trouble = new Trouble(seed);
    const groups = Array.from({ length: 1 + trouble.below(3) }, (_, index) => new SendGroup(`${index}`));
    const of = () => groups[trouble.below(groups.length)] as SendGroup;
    const writers = Array.from({ length: 1 + trouble.below(40) }, () => new Writer(trouble, of()));
    for (let quiet = 0; quiet < 20; ) {
      await tick();
      if (trouble.below(3) > 0) quiet = trouble.giveBack() ? 0 : quiet + 1;
    }
    const stuck = writers.filter(({ left, pending }) => left + pending > 0);
    assert.equal(stuck.length, 0, `seed ${seed}: ${stuck.length} of ${writers.length} streams stand still`);
  }
});

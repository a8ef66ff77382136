import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { WIRE } from '../defaults.ts';
import { DEFAULT_SETTINGS } from './frames.ts';
import { InFlight } from './in-flight.ts';
import { Output, SendGroup } from './output.ts';
import { type PathSettings, SimulatedPath, seeded } from './testing/simulated-path.ts';

const KIB = 1024;
const FRAME = Buffer.alloc(16 * KIB);

/** More than an output would send in that many ticks. */
const TICKS = 200;

/** An output to a socket that accepts everything at once, as a kernel with large buffers does, and streams that always have more. */
function busy({ rtt = 1 } = {}) {
  const checkpoints: ((took: number) => void)[] = [];
  const checkpoint = (read: (took: number) => void) => {
    checkpoints.push(read);
    return Buffer.from('checkpoint');
  };
  const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const failed = () => assert.fail('nothing fails');
  const inFlight = new InFlight({ rtt });
  const output = new Output({
    socket,
    greeting: Buffer.alloc(0),
    defer: setImmediate,
    config: { ...WIRE, backlogBytes: 2 ** 30 },
    inFlight,
    checkpoint,
    failed,
  });
  output.widen(2 ** 31 - 1 - DEFAULT_SETTINGS.initialWindowSize);
  const endless = (group: SendGroup) => ({
    offered: false,
    sendable: true,
    pending: 2 ** 20,
    group,
    sent: 0,
    sendFrame(to: Output, limit: number) {
      const length = Math.min(limit, FRAME.length);
      to.add(FRAME.subarray(0, length));
      this.sent += length;
      return length;
    },
  });
  /** The other side reads all that was sent, time and again. @param answer how long an answer takes with so many bytes under way */
  const read = async (rounds: number, answer: (unread: number) => number) => {
    for (; rounds > 0; rounds--) {
      await ticks();
      const took = answer(inFlight.unread);
      for (const each of checkpoints.splice(0)) each(took);
    }
    await ticks();
    return inFlight.unread;
  };
  return { output, checkpoints, endless, read };
}

async function ticks(): Promise<void> {
  for (let left = TICKS; left > 0; left--) await tick();
}

/** The way of one flood, or of two. */
async function flooded({ rtt = 1, groups = 1 } = {}) {
  const plane = busy({ rtt });
  const floods = Array.from({ length: groups }, (_, index) => plane.endless(new SendGroup(`flood ${index}`)));
  if (groups > 1) plane.output.share();
  for (const flood of floods) plane.output.offer(flood);
  await ticks();
  return { ...plane, flood: floods[0] as (typeof floods)[number] };
}

test('a path that answers at once soon has as much under way as a busy process reads, more if nobody else waits', async () => {
  for (const [groups, kib] of [
    [1, 4096],
    [2, 512],
  ] as const) {
    const { flood, read } = await flooded({ groups, rtt: 0.1 });
    assert.ok(flood.sent <= 64 * KIB, `${flood.sent} bytes at first`);
    const unread = await read(10, () => 0.1);
    assert.ok(unread >= (kib - 16) * KIB && unread <= (kib + 80) * KIB, `${unread} bytes for ${groups}`);
  }
});

test('a thin path has little under way, and what there is waits for less than a fifth of a second', async () => {
  const bytesPerMs = 125;
  const { read } = await flooded({ rtt: 20 });
  for (let round = 0; round < 10; round++) {
    const unread = await read(3, (bytes) => 20 + bytes / bytesPerMs);
    if (round > 2) assert.ok(unread > 0 && unread <= 20 * bytesPerMs + 16 * KIB, `${unread} bytes`);
  }
});

test('a path that has become thin recovers once it is wide again', async () => {
  const { read } = await flooded({ groups: 2 });
  await read(10, () => 1);
  const thin = await read(10, (bytes) => 1 + bytes / 125);
  assert.ok(thin <= 125 * 150, `${thin} bytes`);
  const wide = await read(10, () => 1);
  assert.ok(wide >= 512 * KIB, `${wide} bytes`);
});

test('a path that becomes longer has as much under way as it holds after ten round trips', async () => {
  const { read } = await flooded({ groups: 2 });
  await read(10, () => 1);
  const unread = await read(10, () => 50);
  assert.ok(unread >= 4 * KIB * KIB, `${unread} bytes`);
});

test('a long path has as much under way as it holds', async () => {
  const { read } = await flooded({ groups: 2, rtt: 50 });
  const unread = await read(12, () => 50);
  assert.ok(unread >= 8 * KIB * KIB && unread <= 9 * KIB * KIB, `${unread} bytes`);
});

test('a process that is late now and then does not hold up a path', async () => {
  const { read } = await flooded({ groups: 2 });
  let answers = 0;
  const unread = await read(40, () => (answers++ % 4 === 0 ? 80 : 1));
  assert.ok(unread >= 128 * KIB, `${unread} bytes`);
});

test('a quiet group is next once the other side has read something', async () => {
  const { output, endless, flood, checkpoints } = await flooded({ groups: 2 });
  const quiet = endless(new SendGroup('quiet'));
  const before = flood.sent;
  output.offer(quiet);
  (checkpoints.shift() as (took: number) => void)(1);
  await ticks();
  assert.ok(quiet.sent > 0);
  assert.ok(quiet.sent >= flood.sent - before - FRAME.length, `${quiet.sent} and ${flood.sent - before} bytes`);
});

test('an output without a bound sends no checkpoints', async () => {
  const { output, checkpoints, endless } = busy();
  const free = new Output({
    socket: new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() }),
    greeting: Buffer.alloc(0),
    defer: setImmediate,
    config: { ...WIRE, backlogBytes: 2 ** 30 },
    checkpoint: () => assert.fail('a checkpoint'),
    failed: (error) => assert.fail(error),
  });
  free.widen(2 ** 31 - 1 - DEFAULT_SETTINGS.initialWindowSize);
  const alone = endless(new SendGroup('alone'));
  free.offer(alone);
  await ticks();
  assert.ok(alone.sent > TICKS * 8 * KIB, `${alone.sent} bytes`);
  assert.deepEqual([checkpoints, output.hasRoom], [[], true]);
});

test('the answers of checkpoints that come late say how far the other side has read', () => {
  const inFlight = new InFlight({ rtt: 1 });
  assert.equal(inFlight.send(8 * KIB - 1), false);
  assert.equal(inFlight.send(1), true);
  const read = inFlight.checkpoint();
  inFlight.send(56 * KIB);
  assert.deepEqual([inFlight.unread, inFlight.room], [64 * KIB, 0]);
  read(1);
  assert.equal(inFlight.unread, 56 * KIB);
  assert.ok(inFlight.room >= 8 * KIB);
});

test('what was sent while the limit was high holds nothing up for ever once it is low', () => {
  const inFlight = new InFlight({ rtt: 100 });
  inFlight.send(64 * KIB);
  const read = inFlight.checkpoint();
  inFlight.send(7 * KIB);
  read(10_000);
  assert.ok(inFlight.room >= 8 * KIB, 'no answer will come that ends a wait');
  assert.equal(inFlight.send(KIB), true, 'a checkpoint follows the next bytes');
});

/** 40 Mbit/s, in bytes per millisecond. */
const WIDE = 5000;

/** TCP on a path with as much under way as the bound allows, and bare TCP on such a path. */
function onPath(context: TestContext, settings: PathSettings, seed = 1) {
  const ours = new SimulatedPath({ ...settings }, seeded(seed));
  const bare = new SimulatedPath({ ...settings }, seeded(seed));
  context.mock.method(performance, 'now', () => ours.now);
  ours.bound(new InFlight({ rtt: settings.rtt }));
  const change = (to: Partial<PathSettings>) => {
    for (const path of [ours, bare]) Object.assign(path.settings, to);
  };
  /** @returns which share of bare TCP's bytes came meanwhile */
  const share = (ms: number) => {
    const expected = bare.run(ms);
    return ours.run(ms) / expected;
  };
  return { ours, change, share };
}

for (const rtt of [50, 300, 600, 2100]) {
  test(`TCP grows as fast as without a bound where a round trip takes ${rtt} ms`, (context) => {
    const { share, ours } = onPath(context, { rtt, rate: WIDE });
    const beginning = share(20 * rtt);
    assert.ok(beginning > 0.9, `${beginning} of bare TCP's bytes in 20 round trips`);
    const later = share(40 * rtt);
    assert.ok(later > 0.9, `${later} of bare TCP's bytes in 40 more`);
    assert.ok(ours.delay < 6 * rtt + 100, `what leaves now takes ${ours.delay} ms`);
  });
}

test('a path that loses packets carries nearly what bare TCP gets', (context) => {
  for (const rtt of [50, 300]) {
    const shares = Array.from({ length: 10 }, (_, seed) =>
      onPath(context, { rtt, rate: WIDE, queue: 500_000, loss: 0.01 }, seed).share(200 * rtt),
    );
    const mean = shares.reduce((sum, each) => sum + each, 0) / shares.length;
    assert.ok(mean > 0.85, `${mean} at ${rtt} ms`);
  }
});

test('bytes on a thin path wait for about as long as the path takes', (context) => {
  for (const rate of [125, 1250]) {
    const { share, ours } = onPath(context, { rtt: 50, rate, queue: 100_000 });
    share(5000);
    for (let second = 0; second < 10; second++) {
      assert.ok(share(1000) > 0.9);
      assert.ok(ours.delay < 200, `${ours.delay} ms at ${rate} bytes/ms`);
    }
  }
});

test('a path that becomes longer, and one whose answers take longer, carry as much again within seconds', (context) => {
  for (const change of [{ rtt: 300 }, { answers: 100 }]) {
    const path = onPath(context, { rtt: 50, rate: WIDE, queue: 500_000 });
    path.share(20_000);
    path.change(change);
    path.share(5000);
    const share = path.share(5000);
    assert.ok(share > 0.85, `${share} with ${JSON.stringify(change)}`);
  }
});

test('a path that becomes thin soon has little under way', (context) => {
  const path = onPath(context, { rtt: 50, rate: WIDE, queue: 100_000 });
  path.share(20_000);
  path.change({ rate: 125 });
  path.share(10_000);
  assert.ok(path.ours.delay < 500, `what leaves now takes ${path.ours.delay} ms`);
});

test('a link that has rested begins with little, as TCP does', (context) => {
  const { share, ours } = onPath(context, { rtt: 300, rate: WIDE });
  share(20_000);
  assert.ok(ours.unread > 1000 * KIB);
  ours.sends = false;
  ours.run(10_000);
  assert.equal(ours.unread, 0);
  ours.sends = true;
  ours.run(2);
  assert.ok(ours.unread <= 64 * KIB, `${ours.unread} bytes`);
});

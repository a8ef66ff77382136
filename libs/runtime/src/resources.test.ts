import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { RUNTIME } from './defaults.ts';
import { bufferSizesFor, type DescriptorSource, Descriptors, Memory, memoryLimit, poolBytes } from './resources.ts';

const MIB = 1024 * 1024;

test('a control group without a limit limits nothing', () => {
  assert.deepEqual([0, 128 * MIB, 2 ** 64].map(memoryLimit), [0, 128 * MIB, 0]);
});

test('buffers of a tunnel shrink with the memory that a limit leaves', () => {
  const usual = { stream: 65_536, ahead: 131_072, kept: 262_144, window: 65_536 };
  assert.deepEqual(bufferSizesFor(0), usual);
  assert.deepEqual(bufferSizesFor(1056 * MIB), usual);
  assert.deepEqual(bufferSizesFor(128 * MIB), { stream: 24_576, ahead: 24_576, kept: 24_576, window: 24_576 });
  assert.deepEqual(bufferSizesFor(512 * MIB), { stream: 65_536, ahead: 122_880, kept: 122_880, window: 65_536 });
  for (const limit of [30, 48])
    assert.deepEqual(bufferSizesFor(limit * MIB), { stream: 16_384, ahead: 16_384, kept: 16_384, window: 16_384 });
});

test('a pool is as large as usual, but no more than its part of what a memory limit leaves', () => {
  for (const [wanted, limit, pool] of [
    [64, 0, 64],
    [64, 512, 64],
    [64, 288, 64],
    [64, 256, 56],
    [64, 128, 24],
    [16, 128, 16],
    [64, 48, 4],
    [64, 32, 0],
    [64, 30, 0],
  ] as const)
    assert.equal(poolBytes(wanted * MIB, 1 / 4, limit * MIB), pool * MIB, `${wanted} of ${limit} MiB`);
});

/** A process whose used memory a test sets, in MiB. */
class Used {
  readonly limit: number;
  mib = 0;
  at = 0;
  looks = 0;
  collections = 0;

  constructor(limit: number) {
    this.limit = limit * MIB;
  }

  used(): number {
    this.looks++;
    return this.mib * MIB;
  }

  now(): number {
    return this.at;
  }

  collect(): void {
    this.collections++;
  }
}

test('memory is scarce once only a sixteenth of the limit is left, which is looked at now and then', () => {
  const used = new Used(48);
  const memory = new Memory(used);
  used.mib = 45;
  assert.equal(memory.scarce, false);
  used.mib = 46;
  assert.equal(memory.scarce, false);
  assert.equal(used.looks, 1);
  used.at += 1000;
  assert.equal(memory.scarce, true);
  used.mib = 40;
  used.at += 1000;
  assert.equal(memory.scarce, false);
});

test('without a limit, nobody looks, and nothing is collected', () => {
  const used = new Used(0);
  const memory = new Memory(used);
  memory.filled(1024 * MIB);
  assert.equal(memory.scarce, false);
  assert.deepEqual([used.looks, used.collections], [0, 0]);
});

test('what died young is collected each time that a sixteenth of what is left for tunnels was filled', () => {
  const used = new Used(48);
  const memory = new Memory(used);
  for (let n = 0; n < 8; n++) memory.filled(MIB / 2);
  assert.equal(used.collections, 4);
});

/** Stops the timers of a test. Deno does not start them again by itself. */
function stoppedTimers(context: TestContext) {
  const { timers } = context.mock;
  timers.enable({ apis: ['setTimeout'] });
  context.after(() => timers.reset());
  return timers;
}

/** A process whose open descriptors the test sets. */
function process(limit: number): DescriptorSource & { open: number; at: number; counts: number } {
  return {
    open: 0,
    at: 0,
    counts: 0,
    count() {
      this.counts++;
      return { open: this.open, limit };
    },
    canOpen() {
      return this.open < limit;
    },
    now() {
      return this.at;
    },
  };
}

test('descriptors are scarce when only the reserve is left, and spent when a quarter of it is left', (context) => {
  const timers = stoppedTimers(context);
  const source = process(1024);
  const left = new Descriptors(source);
  const states = [0, 960, 961, 1008, 1009, 1024, 960, 0].map((open) => {
    source.open = open;
    source.at += 1000;
    // Where plenty were left, this only begins to count.
    void left.scarce;
    timers.tick(RUNTIME.descriptorsLookMs);
    return [open, left.scarce, left.spent];
  });
  assert.deepEqual(states, [
    [0, false, false],
    [960, false, false],
    [961, true, false],
    [1008, true, false],
    [1009, true, true],
    [1024, true, true],
    [960, false, false],
    [0, false, false],
  ]);
});

test('a small limit reserves an eighth of itself', () => {
  const source = process(80);
  const left = new Descriptors(source);
  source.open = 70;
  assert.equal(left.scarce, false);
  assert.equal(left.left, 0);
  source.open = 71;
  source.at += 1000;
  assert.equal(left.scarce, true);
});

test('descriptors opened between two counts are estimated, and counted again once they seem scarce', () => {
  const source = process(1024);
  const left = new Descriptors(source);
  assert.equal(left.scarce, false);
  for (let opened = 0; opened < 960; opened++) {
    left.opened();
    assert.equal(left.scarce, false);
  }
  assert.equal(source.counts, 1);
  left.opened();
  assert.equal(left.scarce, true);
  // They are closed again, which nobody reports.
  source.at = 99;
  assert.equal(left.scarce, true);
  source.at = 100;
  assert.equal(left.scarce, false);
  assert.equal(source.counts, 2);
});

test('many open descriptors take long to count, so they are counted less often', (context) => {
  const timers = stoppedTimers(context);
  const source = process(20_000);
  const slow = {
    count() {
      source.at += 25;
      return source.count();
    },
    canOpen: () => true,
    now: () => source.at,
  };
  const left = new Descriptors(slow);
  for (let ms = 0; ms < 11_000; ms += 100, source.at += 100) {
    assert.equal(left.scarce, false);
    timers.tick(100);
  }
  assert.equal(source.counts, 3);
});

test('descriptors never become scarce if the system reports nothing', () => {
  const left = new Descriptors({ count: () => undefined, canOpen: () => true, now: () => 0 });
  for (let opened = 0; opened < 100_000; opened++) left.opened();
  assert.equal(left.scarce, false);
  assert.equal(left.spent, false);
});

test('this process has descriptors left', () => {
  const left = new Descriptors();
  assert.equal(left.exhausted, false);
  assert.equal(left.scarce, false);
});

test('the first count is not put off', () => {
  const source = process(1024);
  source.open = 1000;
  const left = new Descriptors(source);
  assert.deepEqual([left.scarce, source.counts], [true, 1]);
});

test('while half of them are left, nobody waits for a count', (context) => {
  const timers = stoppedTimers(context);
  const source = process(100);
  const left = new Descriptors(source);
  assert.equal(left.scarce, false);
  source.at += 1000;
  source.open = 95;
  for (let times = 0; times < 3; times++) assert.deepEqual([left.scarce, source.counts], [false, 1]);
  timers.tick(RUNTIME.descriptorsLookMs);
  assert.deepEqual([left.scarce, source.counts], [true, 2]);
  source.at += 1000;
  source.open = 0;
  assert.equal(left.scarce, false, 'counted at once: few were left');
  timers.tick(RUNTIME.descriptorsLookMs);
  assert.equal(source.counts, 3);
});

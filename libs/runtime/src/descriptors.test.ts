import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { RUNTIME } from './defaults.ts';
import { type DescriptorSource, Descriptors } from './resources.ts';

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

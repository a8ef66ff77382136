import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { SharedBudget } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';
import { Incoming, type WindowGrowth } from './incoming.ts';

describe('receive window', () => {
  const KIB = 1024;
  const MIB = 1024 * KIB;

  afterEach(() => mock.restoreAll());

  function windowOf(windowBytes: number, rtt: () => number, growth: WindowGrowth, group?: string): Incoming {
    return new Incoming('body', { config: { ...WIRE, windowBytes }, rtt, growth, group });
  }

  /** @returns whether it may come */
  function comes(window: Incoming, bytes: number, excess = 0): boolean {
    return window.receive(bytes, 0, excess) === undefined;
  }

  /** A clock that moves when it is told to. */
  function clock(): { now: number } {
    const time = { now: 0 };
    mock.method(performance, 'now', () => time.now);
    return time;
  }

  /**
   * Fills and reads a window again and again, each half in `ms`.
   * @param way how long after window was returned bytes come that use it, in milliseconds
   * @returns its size in the end
   */
  function pour(window: Incoming, time: { now: number }, ms: number, way = 0, rounds = 100): number {
    let open = 64 * KIB;
    let largest = open;
    for (let round = 0; round < rounds; round++) {
      const bytes = Math.ceil(open / 2);
      time.now += way;
      assert.ok(comes(window, bytes));
      time.now += ms;
      open += window.consume(bytes) - bytes;
      largest = Math.max(largest, open);
    }
    return largest;
  }

  /** Budgets of their own. */
  function budgets(long: number, local: number, excess = 0) {
    const [budget, fast, beyond] = [new SharedBudget(long), new SharedBudget(local), new SharedBudget(excess, true)];
    return { budget, local: fast, largest: 16 * MIB, excess: beyond };
  }

  test('what comes beyond windows, before our SETTINGS were read, has a budget, of which a tenant may use half', () => {
    const growth = budgets(0, 0, 128 * KIB);
    const open = () => windowOf(16 * KIB, () => 1, growth, 'acme');
    const [first, second] = [open(), open()];
    assert.equal(comes(first, 40 * KIB, 48 * KIB), true);
    assert.equal(comes(first, 24 * KIB, 48 * KIB), true);
    assert.equal(comes(second, 32 * KIB, 48 * KIB), true);
    assert.equal(comes(second, 1, 48 * KIB), false);
    first.close();
    const next = open();
    assert.equal(comes(next, 64 * KIB, 48 * KIB), true);
    assert.equal(comes(next, 1, 48 * KIB), false, 'nor more than it may');
    const stranger = windowOf(16 * KIB, () => 1, growth);
    assert.equal(comes(stranger, 40 * KIB, 48 * KIB), true);
  });

  test('what came beyond a window gives its budget back as it is read', () => {
    const growth = budgets(0, 0, 128 * KIB);
    const window = windowOf(16 * KIB, () => 1, growth, 'acme');
    const held = () => 128 - growth.excess.left / KIB;
    assert.equal(comes(window, 56 * KIB, 48 * KIB), true);
    assert.equal(held(), 40);
    assert.equal(window.consume(6 * KIB), 0);
    assert.equal(held(), 34);
    assert.equal(window.consume(24 * KIB), 30 * KIB);
    assert.equal(held(), 10);
    window.account('beta');
    assert.equal(comes(window, 8 * KIB, 48 * KIB), true);
    assert.equal(held(), 18);
    assert.equal(window.consume(34 * KIB), 34 * KIB);
    assert.equal(held(), 0);
    window.close();
    assert.equal(held(), 0);
  });

  test('who uses window that was returned has read our SETTINGS, and sends nothing beyond it', () => {
    const window = windowOf(16 * KIB, () => 1, budgets(0, 0, MIB), 'acme');
    assert.equal(comes(window, 40 * KIB, 48 * KIB), true);
    assert.equal(window.consume(40 * KIB), 40 * KIB);
    assert.equal(comes(window, 24 * KIB, 48 * KIB), true, 'what was on its way');
    assert.equal(comes(window, 1, 48 * KIB), false);
  });

  test('a window that is read fast doubles up to 4 MiB, and further where the round-trip time is long', () => {
    const time = clock();
    const near = windowOf(64 * KIB, () => 1, budgets(100 * MIB, 16 * MIB));
    assert.equal(pour(near, time, 5, 1), 4 * MIB);
    const far = windowOf(64 * KIB, () => 110, budgets(100 * MIB, 0));
    assert.equal(pour(far, time, 50, 110), 16 * MIB);
  });

  test('a window whose halves are returned together, and so once a round trip, grows', () => {
    const time = clock();
    const window = windowOf(64 * KIB, () => 300, budgets(100 * MIB, 0));
    assert.equal(pour(window, time, 310, 300), 16 * MIB);
  });

  test('a window does not grow beyond what its path holds, however fast it is read', () => {
    const time = clock();
    const window = windowOf(64 * KIB, () => 3, budgets(100 * MIB, 16 * MIB));
    assert.equal(pour(window, time, 0.1, 3), 4 * MIB);
    const longer = windowOf(64 * KIB, () => 50, budgets(100 * MIB, 16 * MIB));
    assert.equal(pour(longer, time, 0.1, 50), 50 * 160 * KIB);
  });

  test('a window whose returned bytes are used at once is not that of a long path, whatever a PING of a busy process took', () => {
    const time = clock();
    const window = windowOf(64 * KIB, () => 100, budgets(100 * MIB, 16 * MIB));
    assert.equal(pour(window, time, 10, 1), 4 * MIB);
  });

  test('a path that has become longer counts as long again', () => {
    const time = clock();
    let rtt = 1;
    const window = windowOf(64 * KIB, () => rtt, budgets(100 * MIB, 0));
    assert.equal(pour(window, time, 5, rtt), 64 * KIB);
    rtt = 110;
    assert.equal(pour(window, time, 5, rtt), 16 * MIB);
  });

  test('a window counts from the first bytes on, and not from the dial', () => {
    const time = clock();
    const window = windowOf(64 * KIB, () => 300, budgets(100 * MIB, 0));
    time.now += 900;
    assert.ok(comes(window, 16 * KIB));
    assert.equal(window.consume(16 * KIB), 0);
    time.now += 300;
    assert.ok(comes(window, 16 * KIB));
    assert.equal(window.consume(16 * KIB), (32 + 192) * KIB);
  });

  test('windows that grow because they are read fast have a budget of their own', () => {
    const time = clock();
    const limits = budgets(100 * MIB, 16 * MIB);
    const open = (rtt: number) =>
      pour(
        windowOf(64 * KIB, () => rtt, limits),
        time,
        5,
        rtt,
      );
    assert.equal(open(110), 16 * MIB);
    // The first four take 15.75 MiB of it.
    const sizes = Array.from({ length: 6 }, () => open(1));
    assert.deepEqual(sizes, [4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 256 * KIB, 128 * KIB]);
    assert.equal(open(1), 64 * KIB);
    assert.equal(open(110), 16 * MIB);
  });

  test('a window that is read slowly, or not at all, stays as it began', () => {
    const time = clock();
    const limits = budgets(100 * MIB, 100 * MIB);
    const slow = windowOf(64 * KIB, () => 1, limits);
    assert.equal(pour(slow, time, 1000), 64 * KIB);
    const stalled = windowOf(64 * KIB, () => 1, limits);
    assert.ok(comes(stalled, 64 * KIB));
    assert.equal(comes(stalled, 1), false, 'not a byte more');
    assert.deepEqual([limits.budget.left, limits.local.left], [100 * MIB, 100 * MIB]);
  });

  test('all windows grow within the budgets, which get back what a stream had', () => {
    const time = clock();
    const limits = budgets(2 * MIB, 2 * MIB);
    const windows = [1, 1, 1, 1, 10, 10].map((rtt) => windowOf(64 * KIB, () => rtt, limits));
    for (const window of windows) pour(window, time, 5, 10);
    for (const { left } of [limits.budget, limits.local]) assert.ok(left < MIB && left >= 0);
    for (const window of windows) window.close();
    assert.deepEqual([limits.budget.left, limits.local.left], [2 * MIB, 2 * MIB]);
  });

  test('a window whose group is known late uses that group’s share', () => {
    const budget = new SharedBudget(4 * MIB);
    const time = clock();
    mock.method(performance, 'now', () => time.now);
    const growing = (group: string) => {
      const window = windowOf(64 * KIB, () => 0, { ...budgets(0, 0), local: budget });
      window.account(group);
      for (let i = 0; i < 20; i++) {
        time.now += 1;
        window.consume(8 * MIB);
      }
      return window;
    };
    const [a, b] = [growing('a'), growing('b')];
    const left = budget.left;
    assert.ok(left > 0, 'a second group asked, and some is left');
    a.close();
    b.close();
    assert.equal(budget.left, 4 * MIB);
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SpareBytes, type TenantBytes } from './spare-bytes.ts';

const MIB = 1024 * 1024;

/** A loop that is busy in proportion to what is carried: all the time with 200 MiB a second. */
function loop({ busyAt = 200 * MIB } = {}) {
  const state = { now: 0, carried: 0, other: 0 };
  let tick: (() => void) | undefined;
  const spare = new SpareBytes({
    use() {
      const use = state.other + state.carried / (busyAt * 0.02);
      state.carried = 0;
      return Math.min(1, use);
    },
    now: () => state.now,
    every(_, run) {
      tick = run;
      return () => {
        tick = undefined;
      };
    },
  });
  const carry = (tenant: TenantBytes, bytes: number) => {
    state.carried += bytes;
    return tenant.spend(bytes);
  };
  /** Each of them carries as much as it may each millisecond, up to so many bytes. @returns what they carried in the last second */
  const run = (seconds: number, ...tenants: readonly { readonly of: TenantBytes; readonly most: number }[]) => {
    const last = tenants.map(() => 0);
    for (let ms = 0; ms < seconds * 1000; ms++) {
      state.now++;
      for (const [index, { of, most }] of tenants.entries()) {
        for (let left = most / 1000; left > 0 && of.left > 0; left -= 16 * 1024) {
          carry(of, Math.min(left, 16 * 1024));
          if (ms >= (seconds - 1) * 1000) last[index] = (last[index] ?? 0) + Math.min(left, 16 * 1024);
        }
      }
      if (state.now % 20 === 0) tick?.();
    }
    return last.map((bytes) => bytes / MIB) as [number, number];
  };
  return { spare, state, run, ticks: () => tick !== undefined };
}

test('a tenant that moves bulk leaves half of the time to a quiet one', () => {
  const { spare, run } = loop();
  const [bulk, quiet] = [spare.tenant(), spare.tenant()];
  const [carried, kept] = run(10, { of: bulk, most: 400 * MIB }, { of: quiet, most: MIB });
  assert.ok(carried > 80 && carried < 120, `${carried} MiB/s`);
  assert.ok(kept > 0.95, `${kept} MiB/s of the quiet one`);
});

test('a tenant alone carries as much as the loop can', () => {
  const { spare, run } = loop();
  const [carried] = run(5, { of: spare.tenant(), most: 200 * MIB });
  assert.ok(carried > 195, `${carried} MiB/s`);
});

test('tenants that all move bulk keep no time for each other', () => {
  const { spare, run } = loop();
  const both = run(5, ...[spare.tenant(), spare.tenant()].map((of) => ({ of, most: 100 * MIB })));
  for (const carried of both) assert.ok(carried > 95, `${both} MiB/s`);
});

test('two that move bulk beside a quiet one carry alike', () => {
  const { spare, run } = loop();
  const [a, b, quiet] = [spare.tenant(), spare.tenant(), spare.tenant()];
  const [first, second] = run(10, { of: a, most: 300 * MIB }, { of: b, most: 300 * MIB }, { of: quiet, most: MIB });
  assert.ok(Math.abs(first - second) < 0.1 * first, `${first} and ${second} MiB/s`);
  assert.ok(first + second < 120, `${first} and ${second} MiB/s`);
});

test('a loop with time to spare lets nobody wait', () => {
  const { spare, run } = loop({ busyAt: 1000 * MIB });
  const [bulk, quiet] = [spare.tenant(), spare.tenant()];
  const [carried] = run(5, { of: bulk, most: 400 * MIB }, { of: quiet, most: MIB });
  assert.ok(carried > 395, `${carried} MiB/s`);
});

test('a loop that is busy with something else still lets 16 MiB a second through', () => {
  const { spare, state, run } = loop();
  state.other = 1;
  const [bulk, quiet] = [spare.tenant(), spare.tenant()];
  const [carried] = run(10, { of: bulk, most: 400 * MIB }, { of: quiet, most: MIB });
  assert.ok(carried > 14 && carried < 18, `${carried} MiB/s`);
});

test('bulk has all of the time again once the quiet tenant has gone, and nobody looks at the loop when all have', () => {
  const { spare, run, ticks } = loop();
  const [bulk, quiet] = [spare.tenant(), spare.tenant()];
  run(5, { of: bulk, most: 180 * MIB }, { of: quiet, most: MIB });
  run(10, { of: bulk, most: 180 * MIB });
  const [carried] = run(2, { of: bulk, most: 180 * MIB });
  assert.ok(carried > 175, `${carried} MiB/s`);
  assert.equal(ticks(), true);
  run(30);
  assert.equal(ticks(), false);
});

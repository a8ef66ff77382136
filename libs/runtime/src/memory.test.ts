import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bufferSizesFor, Memory, memoryLimit, poolBytes } from './resources.ts';

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

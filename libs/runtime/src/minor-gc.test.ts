import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getHeapSpaceStatistics } from 'node:v8';
import { MinorGc, type YoungGeneration } from './minor-gc.ts';

const MIB = 1024 * 1024;

/** Reports the size it is given, and records what it is asked to do. */
class Young implements YoungGeneration {
  readonly asked: string[] = [];
  bytes: number;

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  collect(): void {
    this.asked.push('collect');
  }

  collectAll(): void {
    this.asked.push('collect all');
  }

  capacity(): number {
    return this.bytes;
  }

  growBy(factor: number): void {
    this.asked.push(`grow by ${factor}`);
  }
}

function reads(garbage: MinorGc, count: number, bytes: number): void {
  for (let read = 0; read < count; read++) garbage.read(bytes);
}

test('the young generation is collected after every 8 MiB, and at no other time', () => {
  const young = new Young(16 * MIB);
  const garbage = new MinorGc(young, 0);
  reads(garbage, (24 * MIB) / 65_536, 65_536);
  garbage.read(8 * MIB - 1);
  assert.deepEqual(young.asked, ['collect', 'collect', 'collect']);
});

test('where memory is small, it is collected after a 32nd of that, and after 1 MiB or more', () => {
  for (const [memory, every] of [
    [0, 8],
    [1e15, 8],
    [128 * MIB, 4],
    [30 * MIB, 1],
  ] as const) {
    const young = new Young(16 * MIB);
    const garbage = new MinorGc(young, memory);
    garbage.read(every * MIB - 1);
    assert.deepEqual(young.asked, [], `${memory}`);
    garbage.read(1);
    assert.deepEqual(young.asked, ['collect'], `${memory}`);
  }
});

test('the young generation of a busy process may grow to 4 MiB, whenever it is smaller', () => {
  const young = new Young(MIB);
  const garbage = new MinorGc(young);
  reads(garbage, 1023, 1);
  assert.deepEqual(young.asked, [], 'a process at rest leaves it as it is');
  reads(garbage, 1, 1);
  young.bytes = 2 * MIB;
  reads(garbage, 256, 1);
  assert.deepEqual(young.asked.splice(0), ['grow by 2']);
  young.bytes = 4 * MIB;
  reads(garbage, 512, 1);
  assert.deepEqual(young.asked.splice(0), ['grow by 1']);
  young.bytes = MIB;
  reads(garbage, 256, 1);
  assert.deepEqual(young.asked, ['grow by 2']);
});

test('the whole heap is collected twice once a busy process is at rest, and again after more work', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const young = new Young(4 * MIB);
  const garbage = new MinorGc(young);
  const rest = () => {
    for (let round = 0; round < 4; round++) t.mock.timers.tick(2_000);
  };
  reads(garbage, 1023, 1);
  rest();
  assert.deepEqual(young.asked, [], 'it has not been busy');
  reads(garbage, 1, 1);
  t.mock.timers.tick(1_999);
  reads(garbage, 256, 1);
  t.mock.timers.tick(1_999);
  assert.deepEqual(young.asked, [], 'it is still busy');
  rest();
  assert.deepEqual(young.asked.splice(0), ['collect all', 'collect all']);
  reads(garbage, 256, 1);
  rest();
  assert.deepEqual(young.asked, [], 'a little traffic is no work');
  reads(garbage, 1024, 1);
  rest();
  assert.deepEqual(young.asked, ['collect all', 'collect all']);
});

test("a runtime's own collector can be called, and live objects stay", () => {
  const garbage = new MinorGc();
  const kept = Buffer.from('kept');
  garbage.read(1e9);
  assert.equal(String(kept), 'kept');
});

test("a runtime's own young generation does not outgrow its bound", () => {
  const garbage = new MinorGc();
  let living: unknown[] = [];
  for (let round = 0; round < 40_000; round++) {
    living.push({ round, of: [round], with: new Array(16).fill(round) });
    if (living.length > 2_000) living = [];
    garbage.read(1);
  }
  // A runtime without such a space is not checked.
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  const bytes = space ? space.space_used_size + space.space_available_size : 0;
  assert.ok(bytes <= 4 * MIB, `${bytes} bytes`);
});

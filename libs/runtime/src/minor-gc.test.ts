import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { getHeapSpaceStatistics } from 'node:v8';
import { MinorGc } from './minor-gc.ts';
import type { YoungGeneration } from './young-generation.ts';

describe('minor gc', () => {
  const MIB = 1024 * 1024;

  afterEach(() => mock.timers.reset());

  /** Reports the size it is given, and records what it is asked to do. */
  class Young implements YoungGeneration {
    readonly asked: string[] = [];
    bytes: number;
    /** Of these, a collection of the whole heap leaves `live`. */
    outsideBytes = 0;
    live = 0;
    /** So large that V8 decides on its growth. */
    heapBytes = 64 * MIB;

    constructor(bytes: number) {
      this.bytes = bytes;
    }

    collect(): void {
      this.asked.push('collect');
    }

    collectAll(): void {
      this.asked.push('collect all');
      this.outsideBytes = this.live;
    }

    outside(): number {
      return this.outsideBytes;
    }

    capacity(): number {
      return this.bytes;
    }

    growBy(factor: number): void {
      this.asked.push(`grow by ${factor}`);
    }

    used(): number {
      return this.heapBytes;
    }

    growHeapBy(percent: number): void {
      this.asked.push(`grow the heap by ${percent} %`);
    }
  }

  function reads(garbage: MinorGc, count: number, bytes: number): void {
    for (let read = 0; read < count; read++) garbage.countRead(bytes);
  }

  test('the young generation is collected after every 8 MiB, and at no other time', () => {
    const young = new Young(16 * MIB);
    const garbage = new MinorGc(young, 0);
    reads(garbage, (24 * MIB) / 65_536, 65_536);
    garbage.countRead(8 * MIB - 1);
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
      garbage.countRead(every * MIB - 1);
      assert.deepEqual(young.asked, [], `${memory}`);
      garbage.countRead(1);
      assert.deepEqual(young.asked, ['collect'], `${memory}`);
    }
  });

  test('where memory is small, buffers that grew old are collected once they are a sixteenth of it', () => {
    for (const [memory, old] of [
      [32 * MIB, 2 * MIB],
      [64 * MIB, 4 * MIB],
    ] as const) {
      const young = new Young(16 * MIB);
      const garbage = new MinorGc(young, memory);
      young.outsideBytes = 3 * MIB;
      garbage.countRead(2 * MIB);
      young.outsideBytes = young.live = 3 * MIB + old - 1;
      garbage.countRead(2 * MIB);
      assert.deepEqual(young.asked.splice(0), ['collect', 'collect'], 'not yet');
      young.outsideBytes = 3 * MIB + old;
      garbage.countRead(2 * MIB);
      assert.deepEqual(young.asked.splice(0), ['collect', 'collect all']);
      garbage.countRead(2 * MIB);
      young.outsideBytes += old - 1;
      garbage.countRead(2 * MIB);
      assert.deepEqual(
        young.asked.splice(0),
        ['collect', 'collect'],
        'what is in use is not collected again and again',
      );
      young.outsideBytes = young.live = 2 * MIB;
      garbage.countRead(2 * MIB);
      young.outsideBytes = 2 * MIB + old;
      garbage.countRead(2 * MIB);
      assert.deepEqual(young.asked, ['collect', 'collect', 'collect all'], 'counted from the least that was left');
    }
  });

  test('where memory is not small, V8 collects old buffers', () => {
    const young = new Young(16 * MIB);
    const garbage = new MinorGc(young, 65 * MIB);
    young.outsideBytes = 60 * MIB;
    reads(garbage, 2, 4 * MIB);
    assert.deepEqual(young.asked, ['collect', 'collect']);
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

  test('a busy heap has room for 32 MiB of buffers while it is no larger, and memory is not small', () => {
    const young = new Young(4 * MIB);
    young.heapBytes = 10 * MIB;
    const garbage = new MinorGc(young, 0);
    reads(garbage, 1023, 1);
    assert.deepEqual(young.asked, [], 'a process at rest leaves it as it is');
    reads(garbage, 257, 1);
    assert.deepEqual(young.asked.splice(0), ['grow the heap by 300 %']);
    for (const [heapBytes, percent] of [
      [32 * MIB, 100],
      [32 * MIB + 1, 0],
      [16 * MIB, 200],
    ] as const) {
      young.heapBytes = heapBytes;
      reads(garbage, 512, 1);
      assert.deepEqual(young.asked.splice(0), [`grow the heap by ${percent} %`]);
    }

    const small = new Young(4 * MIB);
    small.heapBytes = MIB;
    reads(new MinorGc(small, 256 * MIB), 2048, 1);
    assert.deepEqual(small.asked, []);
  });

  test('the whole heap is collected twice once a process with much in its buffers is at rest, and again after more', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const young = new Young(4 * MIB);
    young.outsideBytes = 48 * MIB;
    const garbage = new MinorGc(young, 0);
    const rest = () => {
      for (let round = 0; round < 4; round++) mock.timers.tick(2_000);
    };
    reads(garbage, 1023, 1);
    rest();
    assert.deepEqual(young.asked, [], 'it has not been busy');
    reads(garbage, 1, 1);
    young.outsideBytes = 0;
    mock.timers.tick(1_999);
    reads(garbage, 256, 1);
    mock.timers.tick(1_999);
    assert.deepEqual(young.asked, [], 'it is still busy');
    rest();
    assert.deepEqual(young.asked.splice(0), ['collect all', 'collect all']);
    young.outsideBytes = 48 * MIB;
    reads(garbage, 256, 1);
    rest();
    assert.deepEqual(young.asked, [], 'a little traffic is no work');
    reads(garbage, 1024, 1);
    rest();
    assert.deepEqual(young.asked, ['collect all', 'collect all']);
  });

  test('without much in its buffers, a process at rest collects its whole heap once ten minutes have passed', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const young = new Young(4 * MIB);
    young.outsideBytes = 48 * MIB - 1;
    let now = 0;
    const garbage = new MinorGc(young, 0, () => now);
    const passes = (ms: number) => {
      now += ms;
      mock.timers.tick(ms);
    };
    for (const round of ['since the process began', 'since the last collection']) {
      reads(garbage, 1024, 1);
      passes(2_000);
      passes(400_000);
      reads(garbage, 256, 1);
      passes(2_000);
      passes(195_999);
      assert.deepEqual(young.asked, [], `not yet ${round}`);
      passes(1);
      assert.deepEqual(young.asked.splice(0), ['collect all'], round);
      mock.timers.tick(2_000);
      assert.deepEqual(young.asked.splice(0), ['collect all'], round);
    }
  });

  test('where memory is small, it collects its whole heap at each rest', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const young = new Young(4 * MIB);
    const garbage = new MinorGc(young, 256 * MIB, () => 0);
    for (const round of [1, 2]) {
      reads(garbage, 1024, 1);
      for (let times = 0; times < 4; times++) mock.timers.tick(2_000);
      assert.deepEqual(young.asked.splice(0), ['collect all', 'collect all'], `rest ${round}`);
    }
  });

  test("a runtime's own collector can be called, and live objects stay", () => {
    const garbage = new MinorGc();
    const kept = Buffer.from('kept');
    garbage.countRead(1e9);
    assert.equal(String(kept), 'kept');
  });

  test("a runtime's own young generation does not outgrow its bound", () => {
    const garbage = new MinorGc();
    let living: unknown[] = [];
    for (let round = 0; round < 40_000; round++) {
      living.push({ round, of: [round], with: new Array(16).fill(round) });
      if (living.length > 2_000) living = [];
      garbage.countRead(1);
    }
    // A runtime without such a space is not checked.
    const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
    const bytes = space ? space.space_used_size + space.space_available_size : 0;
    assert.ok(bytes <= 4 * MIB, `${bytes} bytes`);
  });
});

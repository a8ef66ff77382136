import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { afterReads, Closings, ConnectionReads, ReadBudget, Readers } from './ticks.ts';

/** Closings whose ticks the test runs. */
function rig() {
  const ticks: (() => void)[] = [];
  const closings = new Closings((next) => void ticks.push(next));
  const called: number[] = [];
  return {
    closings,
    called,
    end(count: number) {
      for (let added = 0; added < count; added++) {
        const id = ends++;
        closings.add(() => void called.push(id));
      }
    },
    /** Runs a tick of the event loop. @returns whether there was anything to run */
    tick() {
      const next = ticks.shift();
      next?.();
      return next !== undefined;
    },
  };
}

let ends = 0;

describe('ends of streams and connections', () => {
  it('are acted upon at once while they are few', () => {
    ends = 0;
    const { called, end } = rig();
    end(2);
    assert.deepEqual(called, [0, 1]);
  });

  it('are spread over ticks of the event loop when they are many, in their order', () => {
    ends = 0;
    const { called, end, tick } = rig();
    end(100);
    const each: number[] = [called.length];
    while (tick()) each.push(called.length - each.reduce((sum, count) => sum + count, 0));
    assert.deepEqual(
      called,
      Array.from({ length: 100 }, (_, id) => id),
    );
    const most = Math.max(...each);
    assert.ok(most <= 16, `${most} in one tick`);
  });

  it('wait behind those that came before', () => {
    ends = 0;
    const { called, end, tick } = rig();
    end(100);
    tick();
    const before = called.length;
    end(1);
    assert.equal(called.length, before);
    while (tick());
    assert.equal(called.at(-1), 100);
  });

  it('are acted upon at once again after a calm tick', () => {
    ends = 0;
    const { called, end, tick } = rig();
    end(50);
    while (tick());
    end(1);
    assert.equal(called.at(-1), 50);
  });
});

const KIB = 1024;

/** Ticks that end when the test says so. */
function ticks() {
  const waiting: (() => void)[] = [];
  const readBudget = new ReadBudget((act) => void waiting.push(act));
  const end = () => {
    for (const act of waiting.splice(0)) act();
  };
  return { readBudget, end };
}

test('a connection with much to read rests once a tick has read 512 KiB, and reads on in the next', () => {
  const { readBudget, end } = ticks();
  const bulk = new ConnectionReads();
  const reads = () => Array.from({ length: 9 }, () => readBudget.count(bulk, 64 * KIB));
  const rests = [...Array(7).fill(false), true, true];
  assert.deepEqual(reads(), rests);
  end();
  assert.deepEqual(reads(), rests);
});

test('all connections share a tick', () => {
  const { readBudget } = ticks();
  const rest = Array.from({ length: 8 }, () => {
    const reader = new ConnectionReads();
    return [readBudget.count(reader, 64 * KIB), readBudget.count(reader, 64 * KIB)];
  });
  assert.deepEqual(rest.slice(0, 3).flat(), Array(6).fill(false));
  assert.deepEqual(rest.slice(4), Array(4).fill([false, true]));
});

test("connections that rest read on in turns of tenants, and all of a tenant's as much in a tick as one", () => {
  const { readBudget, end } = ticks();
  const read: string[] = [];
  // Each reads 64 KiB in its turn, and would read on.
  const restAs = (tenant: Readers, name: string) => {
    const own = new ConnectionReads();
    own.readers = tenant;
    const turn = () => {
      read.push(name);
      readBudget.count(own, 64 * KIB);
      readBudget.rest(own, turn);
    };
    turn();
  };
  const loud = new Readers();
  for (let n = 0; n < 40; n++) restAs(loud, `loud ${n}`);
  restAs(new Readers(), 'quiet');
  read.length = 0;
  end();
  assert.equal(read.length, 8, 'no more than 512 KiB');
  assert.equal(read.filter((name) => name === 'quiet').length, 4);
  read.length = 0;
  for (let tick = 0; tick < 10; tick++) end();
  assert.equal(read.length, 80);
  assert.equal(new Set(read).size, 41, 'each has a turn');
});

for (const tenants of [1, 8, 40])
  test(`of 40 sockets of ${tenants} tenants that rest, four are read on in each tick`, () => {
    const { readBudget, end } = ticks();
    const groups = Array.from({ length: tenants }, () => new Readers());
    let readable: (() => void)[] = [];
    for (let n = 0; n < 40; n++) {
      const own = new ConnectionReads();
      own.readers = groups[n % tenants] as Readers;
      const read = () => {
        while (!readBudget.count(own, 64 * KIB));
        readBudget.rest(own, () => {
          readBudget.expect();
          readable.push(read);
        });
      };
      readable.push(read);
    }
    const each = Array.from({ length: 20 }, () => {
      const now = readable;
      readable = [];
      for (const read of now) read();
      end();
      return readable.length;
    });
    assert.deepEqual(each, Array(20).fill(4));
  });

test('a connection that rests in a tick that read little reads on in the next, too', () => {
  const { readBudget, end } = ticks();
  let turns = 0;
  readBudget.rest(new ConnectionReads(), () => void turns++);
  end();
  assert.equal(turns, 1);
});

test('a connection with little to read never rests, not even among many of its tenant', () => {
  const { readBudget } = ticks();
  const [bulk, quiet] = [new ConnectionReads(), new ConnectionReads()];
  quiet.readers = bulk.readers;
  for (let read = 0; read < 16; read++) readBudget.count(bulk, 64 * KIB);
  assert.equal(readBudget.count(quiet, 100), false);
});

test('ticks that read little begin nothing, and what they read makes no quiet connection rest', () => {
  let begun = 0;
  const readBudget = new ReadBudget(() => void begun++);
  const [quiet, bulk] = [new ConnectionReads(), new ConnectionReads()];
  for (let read = 0; read < 255; read++) readBudget.count(quiet, KIB);
  assert.equal(begun, 0);
  for (let read = 0; read < 9; read++) readBudget.count(bulk, 64 * KIB);
  assert.equal(begun, 1);
  assert.equal(readBudget.count(quiet, KIB), false);
});

test('what waits for the reads of a tick runs in one immediate, and what it adds in the next', async () => {
  const called: string[] = [];
  afterReads(() => {
    called.push('a');
    afterReads(() => called.push('c'));
  });
  afterReads(() => called.push('b'));
  setImmediate(() => called.push('between'));
  await new Promise<void>((done) => afterReads(() => afterReads(done)));
  assert.deepEqual(called, ['a', 'b', 'between', 'c']);
});

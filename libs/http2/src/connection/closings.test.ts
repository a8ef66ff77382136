import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Closings } from './closings.ts';

/** Closings whose turns the test runs. */
function rig() {
  const turns: (() => void)[] = [];
  const closings = new Closings((next) => void turns.push(next));
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
    /** Runs a turn of the event loop. @returns whether there was anything to run */
    turn() {
      const next = turns.shift();
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

  it('are spread over turns of the event loop when they are many, in their order', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(100);
    const each: number[] = [called.length];
    while (turn()) each.push(called.length - each.reduce((sum, count) => sum + count, 0));
    assert.deepEqual(
      called,
      Array.from({ length: 100 }, (_, id) => id),
    );
    const most = Math.max(...each);
    assert.ok(most <= 16, `${most} in one turn`);
  });

  it('wait behind those that came before', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(100);
    turn();
    const before = called.length;
    end(1);
    assert.equal(called.length, before);
    while (turn());
    assert.equal(called.at(-1), 100);
  });

  it('are acted upon at once again after a calm turn', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(50);
    while (turn());
    end(1);
    assert.equal(called.at(-1), 50);
  });
});

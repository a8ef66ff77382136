import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Families } from '../exposition/families.ts';
import { eventLoopDelay } from './event-loop.ts';

/** Starts the metric with a mocked timer, and a clock that the test sets. */
function looked(t: { readonly mock: { readonly timers: typeof test.mock.timers } }) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let now = 0;
  const families = new Families('isthmus_');
  const end = eventLoopDelay(families, () => now);
  return {
    /** Runs the timer once, this many milliseconds late. */
    look(late: number) {
      now += 100 + late;
      t.mock.timers.tick(100);
    },
    async buckets(): Promise<Record<string, number>> {
      const { body } = await families.render();
      const lines = [...body.matchAll(/^isthmus_event_loop_delay_seconds_(?:bucket\{le="(.*)"\}|(count)) (\d+)$/gm)];
      return Object.fromEntries(lines.map(([, le, count, value]) => [le ?? count ?? '', Number(value)]));
    },
    end() {
      end();
      t.mock.timers.reset();
    },
  };
}

test('each sample of the event loop observes its delay', async (t) => {
  const loop = looked(t);
  for (const late of [0, 0.5, 7, -3]) loop.look(late);
  const { '0.002': quick, '0.01': all, count } = await loop.buckets();
  assert.deepEqual([quick, all, count], [3, 4, 4]);
  loop.end();
});

test('a long delay also counts for the samples missed during it, each with a shorter delay', async (t) => {
  const loop = looked(t);
  loop.look(1000);
  const { '0.5': half, '1': whole, count } = await loop.buckets();
  // 1000, 900, ... 500, 400, ... 100 and 0 ms.
  assert.deepEqual([half, whole, count], [6, 11, 11]);
  loop.look(3_600_000);
  assert.equal((await loop.buckets()).count, 11 + 601);
  loop.end();
});

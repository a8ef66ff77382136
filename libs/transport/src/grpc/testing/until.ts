import assert from 'node:assert/strict';
import { afterEach } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

/** How long a test waits for what should come, in milliseconds. */
export const DEADLINE_MS = 60_000;

/** Run after each test, the last first. */
export const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

export async function until(what: string, condition: () => boolean): Promise<void> {
  const end = performance.now() + DEADLINE_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `still not: ${what}`);
    await delay(1);
  }
}

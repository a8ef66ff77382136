import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for something that another process or callback does. Fails after a minute. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, `still not true after a minute: ${condition}`);
    await sleep(2);
  }
}

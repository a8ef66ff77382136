import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for what another process or callback brings about; fails after 5 s. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < deadline, `still not true after 5 s: ${condition}`);
    await sleep(2);
  }
}

import assert from 'node:assert/strict';

const DEADLINE_MS = 60_000;

export async function until(what: string, holds: () => boolean): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  while (!holds()) {
    assert.ok(performance.now() < deadline, `waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

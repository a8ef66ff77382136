import { afterEach } from 'node:test';

/** Run after each test, the last first. */
export const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { Turnstile } from './turnstile.ts';

/** What the tests know of a socket that waits. */
function waiting(): Socket & { destroyed: boolean } {
  const socket = { destroyed: false, on: () => socket, destroy: () => Object.assign(socket, { destroyed: true }) };
  return socket as unknown as Socket & { destroyed: boolean };
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

test('a crowd is let in some at a time and in order, with turns of the event loop between', async () => {
  const turnstile = new Turnstile();
  const begun: number[] = [];
  for (let index = 0; index < 100; index++) turnstile.enter(waiting(), () => begun.push(index));
  assert.deepEqual(begun, []);
  await turn();
  assert.ok(begun.length > 0 && begun.length < 100, `${begun.length} in the first turn`);
  while (begun.length < 100) await turn();
  assert.deepEqual(begun, [...begun.keys()]);
});

test('who went away while it waited is passed over', async () => {
  const turnstile = new Turnstile();
  const begun: string[] = [];
  const gone = waiting();
  turnstile.enter(gone, () => begun.push('gone'));
  turnstile.enter(waiting(), () => begun.push('there'));
  gone.destroy();
  await turn();
  assert.deepEqual(begun, ['there']);
});

test('who waited too long is closed, since it is about to give up', async (t) => {
  t.after(() => t.mock.restoreAll());
  const turnstile = new Turnstile();
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const begun: string[] = [];
  const early = waiting();
  turnstile.enter(early, () => begun.push('early'));
  now = 6000;
  const late = waiting();
  turnstile.enter(late, () => begun.push('late'));
  await turn();
  assert.deepEqual(begun, ['late']);
  assert.deepEqual([early.destroyed, late.destroyed], [true, false]);
});

test('a crowd beyond what can be served is closed at once, and all that wait are when it ends', () => {
  const turnstile = new Turnstile();
  const sockets = Array.from({ length: 8193 }, waiting);
  for (const socket of sockets) turnstile.enter(socket, () => {});
  assert.equal(sockets.at(-1)?.destroyed, true);
  assert.equal(sockets.filter(({ destroyed }) => destroyed).length, 1);
  turnstile.close();
  assert.equal(sockets.filter(({ destroyed }) => destroyed).length, 8193);
});

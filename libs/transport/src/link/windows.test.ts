import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { StreamWindows } from './windows.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

/** A link's session; what it was asked is answered by hand. */
function fakeSession() {
  const answers: (() => void)[] = [];
  const asked: number[] = [];
  const settings = ({ initialWindowSize }: { initialWindowSize: number }, answer: () => void) => {
    asked.push(initialWindowSize);
    answers.push(answer);
  };
  const session = Object.assign(new EventEmitter(), { closed: false, destroyed: false, settings });
  return { session: session as never, asked, answer: () => answers.shift()?.(), close: () => session.emit('close') };
}

function times(count: number, run: () => void): void {
  for (let i = 0; i < count; i++) run();
}

test('few tunnels have the largest window, and more share the budget', () => {
  const windows = new StreamWindows(128 * MIB);
  const { session, asked, answer } = fakeSession();
  times(128, () => windows.opened(session));
  assert.deepEqual(asked, []);
  times(1, () => windows.opened(session));
  assert.deepEqual(asked, [512 * KIB]);
  answer();
  times(128, () => windows.opened(session));
  assert.deepEqual(asked, [512 * KIB, 256 * KIB]);
});

test('the window grows again when there is room for twice as many, so a tunnel more or less changes nothing', () => {
  const windows = new StreamWindows(128 * MIB);
  const { session, asked, answer } = fakeSession();
  times(129, () => windows.opened(session));
  answer();
  for (let round = 0; round < 10; round++) {
    windows.closed(session);
    windows.opened(session);
  }
  times(64, () => windows.closed(session));
  assert.deepEqual(asked, [512 * KIB]);
  windows.closed(session);
  assert.deepEqual(asked, [512 * KIB, 1 * MIB]);
});

test('one question at a time: the next asks for what holds by then', () => {
  const windows = new StreamWindows(1 * MIB);
  const { session, asked, answer } = fakeSession();
  times(64, () => windows.opened(session));
  assert.deepEqual(asked, [512 * KIB]);
  answer();
  assert.deepEqual(asked, [512 * KIB, 16 * KIB]);
  answer();
  assert.equal(asked.length, 2);
});

test('the budget is one for all links, and a link that ends gives back its part', () => {
  const windows = new StreamWindows(4 * MIB);
  const [busy, idle] = [fakeSession(), fakeSession()];
  windows.opened(idle.session);
  windows.closed(idle.session);
  times(16, () => windows.opened(busy.session));
  busy.answer();
  busy.answer();
  assert.equal(busy.asked.at(-1), 256 * KIB);
  assert.deepEqual(idle.asked, [], 'a link without a tunnel was asked');
  windows.opened(idle.session);
  assert.deepEqual(idle.asked, [128 * KIB]);
  idle.answer();
  busy.close();
  assert.equal(idle.asked.at(-1), 1 * MIB);
});

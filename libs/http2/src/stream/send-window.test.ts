import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectionError, MAX_WINDOW } from '../codes.ts';
import { InitialWindow, SendWindow } from './send-window.ts';

/** Windows of one connection, and how often all of them were looked at. */
function windowsOf(count: number) {
  const windows: SendWindow[] = [];
  const looks = { count: 0 };
  const initial = new InitialWindow(
    () => {},
    () => {
      looks.count++;
      return windows;
    },
  );
  for (let n = 0; n < count; n++) windows.push(new SendWindow(initial));
  return { initial, windows, looks };
}

test('what a stream was given and has used up, or was given wrongly, does not stand against a larger initial window', () => {
  const { initial, windows, looks } = windowsOf(2);
  const [used, wrong] = windows as [SendWindow, SendWindow];
  const most = MAX_WINDOW - initial.size;
  assert.ok(used.widen(most));
  used.sent(most);
  assert.equal(wrong.widen(MAX_WINDOW), false);
  windows.pop();
  initial.resize(initial.size + 1);
  assert.equal(used.size, initial.size);
  // All were looked at once, and not for each change.
  for (let n = 0; n < 100; n++) initial.resize(initial.size + 1);
  assert.equal(looks.count, 1);
});

test('an initial window that would widen an open stream beyond 2^31 - 1 is refused', () => {
  const { initial, windows } = windowsOf(2);
  assert.ok(windows[1]?.widen(MAX_WINDOW - initial.size));
  assert.throws(() => initial.resize(initial.size + 1), ConnectionError);
});

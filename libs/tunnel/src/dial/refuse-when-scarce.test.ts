import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Dial, DialRequest } from './dial.ts';
import { refuseWhenScarce } from './refuse-when-scarce.ts';

test('a dial is refused while descriptors are scarce, and may be retried elsewhere', async () => {
  const left = { scarce: true };
  const asked: string[] = [];
  const inner: Dial = ({ id }) => {
    asked.push(id);
    return Promise.reject(new Error('asked'));
  };
  const dial = refuseWhenScarce(inner, left);
  await assert.rejects(dial({ id: 'first' } as DialRequest), {
    code: 'connection_limit_reached',
    retryable: true,
    message: /too many open files/,
  });
  left.scarce = false;
  await assert.rejects(dial({ id: 'second' } as DialRequest), /asked/);
  assert.deepEqual(asked, ['second']);
});

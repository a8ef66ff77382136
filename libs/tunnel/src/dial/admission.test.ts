import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { Admission } from './admission.ts';
import type { DialRequest, Established } from './dial.ts';

function request(tenant = 'default'): DialRequest {
  const destination = { host: 'x', port: 1 };
  return { id: '00000000000000aa', tenant, destination, deadline: 1e12, signal: new AbortController().signal };
}

/** An admission before a Dial that answers when the test says so. */
function held() {
  const answers: (() => void)[] = [];
  const stream = new PassThrough();
  const end = { stream, halfOpen: true, abort: () => void stream.destroy() };
  const established: Established = { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
  const admission = new Admission(() => new Promise((resolve) => answers.push(() => resolve(established))));
  return { admission, answers };
}

test('a tenant with too many pending dials is refused, others are not', async () => {
  const { admission, answers } = held();
  const pending = Array.from({ length: 2000 }, () => admission.dial(request()));
  await assert.rejects(admission.dial(request()), {
    code: 'connection_limit_reached',
    message: 'tenant default has 2000 dials without an answer already',
  });
  const other = admission.dial(request('other'));
  assert.equal(admission.pending, 2001);
  for (const answer of answers.splice(0)) answer();
  await Promise.all([...pending, other]);
  assert.equal(admission.pending, 0);
  const after = admission.dial(request());
  answers[0]?.();
  await after;
});

test('closing refuses new dials and waits for pending ones', async () => {
  const { admission, answers } = held();
  const pending = admission.dial(request());
  let closed = false;
  const closing = admission.close().then(() => {
    closed = true;
  });
  await assert.rejects(admission.dial(request()), {
    code: 'destination_unavailable',
    message: 'proxy is shutting down',
    retryable: true,
    retryAfter: 0,
  });
  assert.equal(closed, false);
  answers[0]?.();
  await pending;
  await closing;
});

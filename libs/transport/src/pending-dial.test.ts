import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { guarding } from '@isthmus/runtime';
import { DialAbort, DialError, type DialRequest, deadlines } from '@isthmus/tunnel';
import { PendingDial, type PendingDialOptions } from './dials.ts';
import { destination, established, request } from './packets/testing.ts';

const soon = () => ({ deadline: performance.now() });

interface Setup {
  readonly pending: PendingDial;
  readonly signal: DialAbort;
  /** What the dial's owner was asked to do, in order. */
  readonly told: string[];
}

function setup(over: Partial<DialRequest> = {}, options: Partial<PendingDialOptions> = {}): Setup {
  const signal = new DialAbort();
  const told: string[] = [];
  const pending = new PendingDial(request({ signal, ...over }), {
    cancel: () => void told.push('cancel'),
    settled: (error) => void told.push(error ? `failed: ${error.message}` : 'answered'),
    guarded: guarding(assert.ifError),
    ...options,
  });
  return { pending, signal, told };
}

const refused = new DialError('connection_refused', 'refused');

// The sweep of deadlines holds no process. These dials have no connection that would.
const held = setInterval(() => {}, 1000);
after(() => clearInterval(held));

test('an answer ends the wait: nothing is due any more, and a later abort or failure has no effect', async () => {
  const before = deadlines.size;
  const { pending, signal, told } = setup();
  assert.equal(deadlines.size, before + 1);
  const answer = established(destination().near);
  pending.succeed(answer);
  assert.equal(deadlines.size, before);
  signal.abort();
  pending.fail(refused);
  assert.equal(await pending.answer, answer);
  assert.deepEqual(told, ['answered']);
});

test('a failure is passed on as it is, without a cancel, and nothing counts after it', async () => {
  const before = deadlines.size;
  const { pending, signal, told } = setup();
  pending.fail(refused);
  pending.succeed(established(destination().near));
  signal.abort();
  assert.equal(deadlines.size, before);
  await assert.rejects(pending.answer, refused);
  assert.deepEqual(told, ['failed: refused']);
});

test('an abort cancels the dial once, before it fails', async () => {
  const { pending, signal, told } = setup();
  signal.abort();
  signal.abort();
  await assert.rejects(pending.answer, {
    code: 'connection_terminated',
    message: 'the caller went away',
    retryable: false,
  });
  assert.deepEqual(told, ['cancel', 'failed: the caller went away']);
});

test('a listener before this one that settles the dial leaves nothing to cancel', async () => {
  const signal = new DialAbort();
  signal.addEventListener('abort', () => pending.fail(refused));
  const { pending, told } = setup({ signal });
  signal.abort();
  await assert.rejects(pending.answer, refused);
  assert.deepEqual(told, ['failed: refused']);
});

test('a dial without an answer is cancelled at its deadline', async () => {
  const { pending, told } = setup(soon());
  const message = "dial tcp [::1]:443: i/o timeout (no answer within the dial's deadline)";
  await assert.rejects(pending.answer, { code: 'connection_timeout', message, expired: true });
  assert.deepEqual(told, ['cancel', `failed: ${message}`]);
});

test('what the owner does meanwhile is done once, before the deadline', async () => {
  let acts = 0;
  const now = performance.now();
  const { pending, told } = setup({ deadline: now + 30 }, { meanwhile: { due: now, act: () => acts++ } });
  await assert.rejects(pending.answer, { expired: true });
  assert.deepEqual([acts, told.length], [1, 2]);
});

test('a deadline and errors of the owner take precedence', async () => {
  const own = {
    abandoned: () => new DialError('dns_error', 'left'),
    expired: () => new DialError('dns_timeout', 'late'),
  };
  await assert.rejects(setup({}, { ...own, ...soon() }).pending.answer, { message: 'late' });
  const { pending, signal } = setup({}, own);
  signal.abort();
  await assert.rejects(pending.answer, { message: 'left' });
});

test('what a callback throws is handed to the owner, who ends the dial', async () => {
  const cancel = () => {
    throw new Error('defect');
  };
  for (const over of [soon(), {}]) {
    const faults: string[] = [];
    const guarded = guarding((error) => {
      faults.push(error.message);
      owned.pending.fail(refused);
    });
    const owned = setup(over, { cancel, guarded });
    if (!('deadline' in over)) owned.signal.abort();
    await assert.rejects(owned.pending.answer, refused);
    assert.deepEqual([faults, owned.told], [['defect'], ['failed: refused']]);
  }
});

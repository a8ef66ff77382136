import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { SharedBudget } from '@isthmus/runtime';
import { SeededTime } from '../testing/channel.ts';
import { RecordingCarrier } from '../testing/index.ts';
import { AgentHalf } from './agent-tunnels.ts';
import { HalfStream } from './half-stream.ts';
import { halvesOf } from './halves.ts';

class AgentStream extends HalfStream {
  override readonly half = new AgentHalf(
    this,
    halvesOf({ timeoutMs: 15_000, budget: new SharedBudget(0) }, new SeededTime(1), 1000, 1000),
  );
  readonly tenant = 'acme';
  isGone = false;

  override gone(): void {
    this.isGone = true;
  }
}

/** A stream over an agent's half, and what it tells its carrier. */
function agent() {
  const stream = new AgentStream();
  const { half } = stream;
  const carrier = new RecordingCarrier();
  half.start(carrier);
  return { stream, half, carrier, marks: carrier.marks };
}

test('the end of a tunnel tells how far its bytes have come', () => {
  const { stream, half, carrier } = agent();
  stream.end('hello');
  assert.equal(stream.half.progress, 0);
  half.mark(carrier, { taken: 3 });
  assert.equal(stream.half.progress, 3);
});

test('a reader that comes after the end gets every byte, and only then is the end taken', async () => {
  const { stream, half, carrier, marks } = agent();
  half.data(carrier, Buffer.from('hello'));
  half.mark(carrier, { taken: 0, final: 5 });
  assert.deepEqual(marks, []);
  let read = '';
  stream.on('data', (chunk) => {
    read += chunk;
  });
  await new Promise((resolve) => stream.once('end', resolve));
  stream.end();
  await setImmediate();
  assert.deepEqual([read, marks], ['hello', [{ taken: 6, final: 0 }]]);
});

test('it has finished once the other half has got everything, and is gone once both have said so', async () => {
  const { stream, half, carrier } = agent();
  let finished = false;
  stream.once('finish', () => {
    finished = true;
  });
  stream.resume().end('bye');
  await setImmediate();
  half.mark(carrier, { taken: 3 });
  await setImmediate();
  assert.equal(finished, false);
  half.mark(carrier, { taken: 4 });
  await setImmediate();
  assert.deepEqual([finished, stream.destroyed], [true, false]);
  half.mark(carrier, { taken: 4, final: 0 });
  await setImmediate();
  half.ended(carrier);
  await setImmediate();
  assert.deepEqual([stream.destroyed, stream.errored, stream.isGone], [true, null, true]);
});

test('a stream that has closed keeps nobody who listened to it, while its half waits for the last word', async () => {
  const { stream, half, carrier } = agent();
  let closed = false;
  stream.on('close', () => {
    closed = true;
  });
  stream.resume().end();
  await setImmediate();
  half.mark(carrier, { taken: 1, final: 0 });
  await setImmediate();
  assert.deepEqual([closed, stream.isGone], [true, false]);
  assert.deepEqual(stream.eventNames(), ['error']);
  half.ended(carrier);
  assert.equal(stream.isGone, true);
});

test('a stream that is destroyed aborts the tunnel', async () => {
  const { stream } = agent();
  stream.destroy();
  await setImmediate();
  assert.equal(stream.isGone, true);
});

test('a stream whose tunnel is complete ends at once when it is aborted, though nobody reads its last bytes', async () => {
  const { stream, half, carrier } = agent();
  stream.end();
  await setImmediate();
  half.data(carrier, Buffer.from('unread'));
  half.mark(carrier, { taken: 1, final: 6 });
  stream.read(0);
  await setImmediate();
  stream.abort(new Error('the reader went away'));
  await setImmediate();
  assert.equal(stream.destroyed, true);
});

test('a tunnel that ended in good order while it was detached is not aborted', async () => {
  const { stream, half, carrier } = agent();
  stream.end();
  await setImmediate();
  half.mark(carrier, { taken: 1 });
  half.data(carrier, Buffer.from('tail'));
  half.mark(carrier, { taken: 1, final: 4 });
  half.lost(carrier, new Error('the link was lost'));
  let read = '';
  stream.on('data', (chunk) => {
    read += chunk;
  });
  await new Promise((resolve) => stream.once('close', resolve));
  assert.deepEqual([read, stream.errored, stream.isGone], ['tail', null, false]);
  const next = new RecordingCarrier();
  half.attach({ number: 1, received: 0, taken: 1 }, () => next);
  assert.ok(
    next.marks.some(({ taken }) => taken === 5),
    JSON.stringify(next.told),
  );
});

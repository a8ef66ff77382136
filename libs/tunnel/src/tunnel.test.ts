import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { describe, it, type TestContext, test } from 'node:test';
import { PlaneEnded, SessionLost } from './errors.ts';
import { ByteMeter } from './limits/byte-meter.ts';
import { UNLIMITED } from './limits/limits.ts';
import { endOf, joined, StreamAsHalf } from './testing/index.ts';
import type { Tunnel } from './tunnel.ts';

/** One side of a tunnel. The test decides what it sends, and reads what it received. */
class Peer extends Duplex {
  readonly halfOpen: boolean;
  readonly received: string[] = [];
  aborted: Error | undefined;
  reads = 0;
  #stalled: (() => void) | undefined;
  #stall = false;

  /** What its half says of itself. */
  half = {};
  delivered?: (then: () => void, silentMs: number) => void;

  constructor({ halfOpen = true, highWaterMark = 16 } = {}) {
    super({ allowHalfOpen: true, highWaterMark });
    this.halfOpen = halfOpen;
  }

  override _read(): void {
    this.reads++;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.received.push(chunk.toString());
    if (this.#stall) this.#stalled = done;
    else done();
  }

  say(text: string): boolean {
    return this.push(text);
  }

  stall(): void {
    this.#stall = true;
  }

  resumeReading(): void {
    this.#stall = false;
    this.#stalled?.();
  }

  abort(reason: Error): void {
    this.aborted ??= reason;
    this.destroy();
  }
}

class PeerEnd extends StreamAsHalf {
  readonly #peer: Peer;

  constructor(peer: Peer) {
    super(peer, peer.half, peer.halfOpen);
    this.#peer = peer;
  }

  override abort(reason: Error): void {
    this.#peer.abort(reason);
  }

  override whenDelivered(then: () => void, silentMs = 0): void {
    const { delivered, writableLength } = this.#peer;
    super.whenDelivered(() => (delivered ? delivered(then, writableLength > 0 ? 0 : silentMs) : then()));
  }
}

/** A tunnel between two of them. */
function between(caller: Peer, destination: Peer, meter?: ByteMeter): Tunnel {
  return joined(new PeerEnd(caller), new PeerEnd(destination), meter);
}

function pair(options: { caller?: object; destination?: object } = {}) {
  const caller = new Peer(options.caller);
  const destination = new Peer(options.destination);
  return { caller, destination, tunnel: between(caller, destination) };
}

/** Fails a side, and waits until it has closed. */
function failed(peer: Peer, failure = new Error('connection reset by peer')): Promise<unknown> {
  const closed = new Promise((resolve) => peer.once('close', resolve));
  peer.destroy(failure);
  return closed;
}

test('bytes flow in both directions and are counted', async () => {
  const { caller, destination, tunnel } = pair();
  caller.say('hello');
  destination.say('hi');
  caller.push(null);
  destination.push(null);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'caller' });
  assert.deepEqual([destination.received.join(''), caller.received.join('')], ['hello', 'hi']);
  assert.deepEqual([tunnel.up, tunnel.down], [5, 2]);
});

test('a half-close leaves the other direction open', async () => {
  const { caller, destination, tunnel } = pair();
  caller.push(null);
  await once(destination, 'finish');
  destination.say('the answer to what came before');
  destination.push(null);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'caller' });
  assert.equal(caller.received.join(''), 'the answer to what came before');
});

test('the side that closes first is reported', async () => {
  const { caller, destination, tunnel } = pair();
  destination.push(null);
  await once(caller, 'finish');
  caller.push(null);
  assert.equal((await tunnel.done).by, 'destination');
});

test('a full writer pauses its reader, and nothing else', async () => {
  const { caller, destination, tunnel } = pair();
  caller.stall();
  while (destination.say('x'.repeat(16))) await new Promise(setImmediate);
  const held = tunnel.down;
  assert.ok(held <= 64, `${held} bytes were taken for a reader that reads nothing`);
  caller.say('still moving');
  while (tunnel.up === 0) await new Promise(setImmediate);
  caller.resumeReading();
  while (tunnel.down === held) await new Promise(setImmediate);
  tunnel.abort(new Error('test over'));
  await tunnel.done;
});

test('a side that fails aborts the other', async () => {
  const { caller, destination, tunnel } = pair();
  const reset = new Error('connection reset by peer');
  destination.destroy(reset);
  assert.deepEqual(await tunnel.done, { how: 'failed', by: 'destination', error: reset });
  assert.equal(caller.aborted, reset);
});

test('what a side sent before it failed is written to the other before the other is cut', async () => {
  const { caller, destination, tunnel } = pair();
  let cut: (() => void) | undefined;
  caller.delivered = (then) => {
    cut = then;
  };
  caller.stall();
  destination.say('the first half of an answer');
  await once(destination, 'data');
  await failed(destination);
  await new Promise(setImmediate);
  assert.deepEqual([caller.received, cut, caller.aborted], [['the first half of an answer'], undefined, undefined]);
  caller.resumeReading();
  await new Promise(setImmediate);
  assert.equal(caller.aborted, undefined, 'it was written, and has yet to arrive');
  cut?.();
  assert.equal((await tunnel.done).by, 'destination');
  assert.equal(String(caller.aborted), 'Error: connection reset by peer');
});

for (const before of [true, false])
  test(`what a slow reader takes ${before ? 'just before' : 'after'} the other side fails counts as written then, not as long ago as it was read`, async () => {
    const { caller, destination, tunnel } = pair();
    let silent: number | undefined;
    caller.delivered = (then, silentMs) => {
      silent = silentMs;
      then();
    };
    caller.stall();
    destination.say('longer than the sixteen bytes that its writer takes');
    await once(destination, 'data');
    const readAt = performance.now();
    while (performance.now() < readAt + 20) await new Promise(setImmediate);
    if (!before) await failed(destination);
    const takenAt = performance.now();
    const drained = once(caller, 'drain');
    caller.resumeReading();
    if (before) {
      await drained;
      await failed(destination);
    }
    assert.equal((await tunnel.done).by, 'destination');
    const most = performance.now() - takenAt;
    assert.ok(silent !== undefined && silent <= most, `${silent} ms, and it was taken ${most} ms ago`);
  });

test('a side that takes nothing of what the failed one sent is cut after a while', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { caller, destination, tunnel } = pair();
  caller.stall();
  destination.say('x');
  await once(destination, 'data');
  await failed(destination);
  t.mock.timers.tick(299_999);
  assert.equal(caller.aborted, undefined);
  t.mock.timers.tick(1);
  assert.ok(caller.aborted);
  assert.equal((await tunnel.done).by, 'destination');
  t.mock.timers.reset();
});

test('a side that closes at once when it is cut is no reason for the other to be cut by another', () => {
  const { caller, destination, tunnel } = pair();
  const { abort } = caller;
  caller.abort = (reason) => {
    abort.call(caller, reason);
    caller.emit('close');
  };
  const cut = new PlaneEnded('the gateway stops');
  tunnel.abort(cut);
  assert.equal(destination.aborted, cut);
});

test('a cut by the plane waits for nothing', async () => {
  const { caller, destination, tunnel } = pair();
  caller.stall();
  destination.say('x');
  await once(destination, 'data');
  const lost = new SessionLost('agent a1: connection closed');
  destination.destroy(lost);
  assert.deepEqual(await tunnel.done, { how: 'cut', by: 'path', error: lost });
  assert.equal(caller.aborted, lost);
});

test('a side that goes away after its end has lost nothing, so the other is not cut', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { caller, destination, tunnel } = pair();
  caller.push(null);
  await once(destination, 'finish');
  await failed(caller);
  t.mock.timers.tick(500);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'caller' });
  assert.deepEqual([destination.destroyed, destination.aborted], [true, undefined]);
  t.mock.timers.reset();
});

test('a cut counts before the end of a caller that waits for its answer, and not before the end of a destination', async () => {
  for (const [first, by] of [
    ['caller', 'agent'],
    ['destination', 'destination'],
  ] as const) {
    const { tunnel, ...ends } = pair();
    ends[first].push(null);
    await once(ends[first], 'end');
    tunnel.abort(new PlaneEnded('the agent stops', { by: 'agent' }));
    const ending = await tunnel.done;
    assert.equal(ending.by, by);
    assert.equal((ending.error as PlaneEnded).by, 'agent');
  }
});

test('a side that vanishes without its EOF is a failure', async () => {
  const { caller, destination, tunnel } = pair();
  caller.destroy();
  const { by, error } = await tunnel.done;
  assert.deepEqual([by, error?.message], ['caller', 'caller went away']);
  assert.ok(destination.aborted);
});

test('a lost session is blamed on neither side', async () => {
  const { destination, tunnel } = pair();
  const lost = new SessionLost('agent a1: connection closed');
  destination.destroy(lost);
  assert.deepEqual(await tunnel.done, { how: 'cut', by: 'path', error: lost });
});

test('a session that is lost after its destination has ended takes nothing from the caller, who gets all of it in order', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { caller, destination, tunnel } = pair();
  caller.stall();
  destination.say('the answer');
  destination.push(null);
  await once(destination, 'end');
  await failed(destination, new SessionLost('agent a1: connection closed'));
  t.mock.timers.tick(500);
  assert.equal(caller.destroyed, false, 'it still reads');
  caller.resumeReading();
  await once(caller, 'finish');
  t.mock.timers.tick(500);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'destination' });
  assert.deepEqual([caller.received, caller.aborted], [['the answer'], undefined]);
  t.mock.timers.reset();
});

test('a session that is lost after its caller has ended, and before its destination has, is a cut', async () => {
  const { caller, destination, tunnel } = pair();
  caller.push(null);
  await once(destination, 'finish');
  const lost = new SessionLost('agent a1: connection closed');
  await failed(destination, lost);
  assert.deepEqual(await tunnel.done, { how: 'cut', by: 'path', error: lost });
  assert.equal(caller.aborted, lost);
});

test('a side that ended before the tunnel began ends the tunnel', async () => {
  const caller = new Peer();
  const destination = new Peer();
  destination.destroy();
  await once(destination, 'close');
  const { by } = await between(caller, destination).done;
  assert.equal(by, 'destination');
  assert.ok(caller.aborted);
});

test('when a side without half-close ends, the other gets what is queued and is then closed for good', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { caller, destination, tunnel } = pair({ destination: { halfOpen: false } });
  destination.say('last words');
  destination.push(null);
  destination.end();
  await once(caller, 'finish');
  assert.equal(caller.received.join(''), 'last words');
  assert.equal(caller.aborted, undefined, 'the caller may still close in good order');
  t.mock.timers.tick(500);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'destination' });
  assert.ok(caller.destroyed, 'a caller that does not close is not waited for');
  assert.equal(caller.aborted, undefined, 'nothing was cut');
  t.mock.timers.reset();
});

test('a half-closed tunnel that stays silent ends', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { caller, destination, tunnel } = pair();
  caller.push(null);
  await once(destination, 'finish');
  t.mock.timers.tick(299_999);
  assert.equal(destination.aborted, undefined);
  t.mock.timers.tick(1);
  assert.equal((await tunnel.done).by, 'limit');
  assert.match(String(destination.aborted), /half-closed and silent/);
  t.mock.timers.reset();
});

for (const [whose, grow] of [
  ['bytes still arrive at a slow reader', (of, at) => (of.progress = at)],
  ['queue still shrinks for a slow reader', (of, at) => (of.waiting = 10 - at)],
] as const satisfies readonly (readonly [string, (of: { progress?: number; waiting: number }, at: number) => number])[])
  test(`a half-closed tunnel whose ${whose} lives on`, async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const of: { progress?: number; waiting: number } = { waiting: 10 };
    const [caller, destination] = [new Peer(), new Peer()];
    destination.half = of;
    const tunnel = between(caller, destination);
    caller.push(null);
    await once(destination, 'finish');
    for (let at = 1; at < 5; at++) {
      grow(of, at);
      t.mock.timers.tick(300_000);
    }
    assert.equal(destination.aborted, undefined);
    t.mock.timers.tick(300_000);
    t.mock.timers.tick(300_000);
    assert.equal((await tunnel.done).by, 'limit');
    assert.match(String(destination.aborted), /half-closed and silent/);
    t.mock.timers.reset();
  });

test('what a failure of a stream says decides who closed the tunnel, and why', async () => {
  const { destination, tunnel } = pair();
  destination.destroy(new PlaneEnded('the hub ended it', { cause: new Error('stream was reset') }));
  const { by, error } = await tunnel.done;
  assert.deepEqual([by, error?.message], ['path', 'the hub ended it']);
});

test('an abort from outside ends both, once', async () => {
  const { caller, destination, tunnel } = pair();
  const reason = new PlaneEnded('the gateway stops', { by: 'gateway' });
  tunnel.abort(reason);
  tunnel.abort(new Error('again'));
  assert.deepEqual(await tunnel.done, { how: 'cut', by: 'gateway', error: reason });
  assert.equal(caller.aborted, reason);
  assert.equal(destination.aborted, reason);
});

test('a socket whose peer has ended gets everything written before it is closed, and no error', async () => {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const client = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
  const [socket] = (await accepted) as [Socket];
  const caller = endOf(socket);
  const destination = new Peer();
  const tunnel = joined(caller, new PeerEnd(destination));
  const all: Buffer[] = [];
  client.on('data', (chunk: Buffer) => all.push(chunk));
  client.end('ask');
  await once(destination, 'finish');
  // Large writes are coalesced until the tick ends, so the kernel does not have them yet when the tunnel ends.
  destination.say('x'.repeat(10_000));
  destination.push(null);
  await once(client, 'end');
  assert.equal(Buffer.concat(all).length, 10_000);
  assert.deepEqual(await tunnel.done, { how: 'closed', by: 'caller' });
  server.close();
});

describe('an idle tunnel', () => {
  /** A clock that the test sets, in milliseconds after the tunnel opened. */
  function timed(t: TestContext) {
    let now = 0;
    // Whole, because the test compares differences.
    const start = Math.ceil(performance.now());
    t.mock.method(performance, 'now', () => start + now);
    return (ms: number) => {
      now = ms;
    };
  }

  const tick = () => new Promise(setImmediate);

  it('has been silent since it opened, or since the last answer', async (t) => {
    const at = timed(t);
    const { caller, destination, tunnel } = pair();
    at(3000);
    assert.equal(tunnel.idleMs, 3000);
    caller.say('request');
    await tick();
    at(4000);
    destination.say('answer');
    await tick();
    at(49_000);
    assert.equal(tunnel.idleMs, 45_000);
    tunnel.abort(new Error('test over'));
    assert.equal(tunnel.idleMs, 0);
  });

  it('is none whose destination spoke long after its caller: it sends a stream', async (t) => {
    const at = timed(t);
    const { caller, destination, tunnel } = pair();
    caller.say('GET /containerLogs?follow=true');
    await tick();
    at(10_000);
    destination.say('a line of the log');
    await tick();
    at(100_000);
    assert.equal(tunnel.idleMs, 0);
    caller.say('another request');
    await tick();
    at(200_000);
    assert.equal(tunnel.idleMs, 0, 'its answer is under way');
    at(200_500);
    caller.say('again');
    await tick();
    destination.say('an answer');
    await tick();
    at(201_500);
    assert.equal(tunnel.idleMs, 1000);
    tunnel.abort(new Error('test over'));
  });

  it('is none with bytes that a reader has not taken, or with an end', async (t) => {
    const at = timed(t);
    const { caller, destination, tunnel } = pair();
    caller.stall();
    destination.say('answer');
    await tick();
    destination.say('more');
    await tick();
    at(60_000);
    assert.ok(tunnel.queued > 0);
    assert.equal(tunnel.idleMs, 0);
    caller.resumeReading();
    await tick();
    assert.equal(tunnel.idleMs, 60_000);
    caller.push(null);
    await tick();
    assert.equal(tunnel.idleMs, 0);
    tunnel.abort(new Error('test over'));
  });

  it('ends in order: the destination first, and what it still says reaches the caller', async () => {
    const { caller, destination, tunnel } = pair();
    tunnel.endIdle();
    await once(destination, 'finish');
    assert.equal(caller.writableEnded, false);
    destination.say('goodbye');
    destination.push(null);
    await once(caller, 'finish');
    caller.push(null);
    assert.deepEqual(await tunnel.done, { how: 'closed', by: 'destination' });
    assert.deepEqual([caller.received, caller.aborted, destination.aborted], [['goodbye'], undefined, undefined]);
  });

  it('ends in order for the caller, too, if its destination does not end', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { caller, tunnel } = pair();
    tunnel.endIdle();
    t.mock.timers.tick(5000);
    await once(caller, 'finish');
    caller.push(null);
    assert.deepEqual(await tunnel.done, { how: 'closed', by: 'destination' });
    assert.equal(caller.aborted, undefined);
    t.mock.timers.reset();
  });

  it('is cut if its destination speaks as it ends and does not end, because more may have been to come', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { caller, destination, tunnel } = pair();
    tunnel.endIdle();
    destination.say('the first half');
    await tick();
    t.mock.timers.tick(5000);
    const { how, by, error } = await tunnel.done;
    assert.deepEqual([how, by, error instanceof PlaneEnded], ['cut', 'gateway', true]);
    assert.ok(caller.aborted && destination.aborted);
    t.mock.timers.reset();
  });

  it('is cut if the half of its destination has no way to it by then: what it said may be there', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const half = { detached: false };
    const caller = new Peer();
    const destination = new Peer();
    destination.half = half;
    const tunnel = between(caller, destination);
    tunnel.endIdle();
    half.detached = true;
    t.mock.timers.tick(5000);
    const { how, by } = await tunnel.done;
    assert.deepEqual([how, by], ['cut', 'gateway']);
    t.mock.timers.reset();
  });

  it('is none while the limits of its tenant keep what a destination has said from being read', async (t) => {
    const at = timed(t);
    const caller = new Peer();
    const destination = new Peer();
    const meter = new ByteMeter('acme', () => ({ ...UNLIMITED, bytesPerSecond: 1 }));
    const tunnel = between(caller, destination, meter);
    destination.say('more than one byte');
    await tick();
    at(60_000);
    assert.equal(tunnel.idleMs, 0);
    tunnel.abort(new Error('test over'));
  });

  it('is cut if a request comes as it ends, which nobody answers', async () => {
    const { caller, destination, tunnel } = pair();
    tunnel.endIdle();
    caller.say('request');
    const { by, error } = await tunnel.done;
    assert.deepEqual([by, error instanceof PlaneEnded], ['gateway', true]);
    assert.deepEqual(destination.received, []);
  });
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import {
  ByteMeter,
  type Dial,
  type Due,
  deadlines,
  type Established,
  PlaneEnded,
  planeEvents,
  SessionLost,
  type Tunnel,
  TunnelTable,
} from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { ErrorCode, type Http2Stream } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { LinkServer } from './server.ts';
import { dialTcp, link, listen, readAll, request } from './testing.ts';

type MeterLimits = ReturnType<ConstructorParameters<typeof ByteMeter>[1]>;

/** A gateway's link to a hub, which passes dials on over its agent's link. */
async function hub(dial: Dial = dialTcp, halfClosedMs?: number, meter?: ByteMeter) {
  const agent = await link(dial);
  const events = planeEvents();
  const tunnels = new TunnelTable(events);
  const outcomes: string[] = [];
  events.on('tunnel:close', (_, { how, by, error }) => outcomes.push(`${how} by ${by}: ${error?.message ?? ''}`));
  const accepted = Promise.withResolvers<Socket>();
  const port = await listen(net.createServer({ allowHalfOpen: true }, accepted.resolve));
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  const served = { socket: await accepted.promise, peer: 'gateway g1', role: 'hub', events, halfClosedMs } as const;
  const metered: Dial = async (dial) => {
    const answer = await agent.client.dial(dial);
    if (meter) answer.meter = meter;
    return answer;
  };
  const server = new LinkServer({ ...served, dial: metered });
  const gateway = new LinkClient({ socket, peer: 'hub h1', events: planeEvents() });
  cleanups.push(() => gateway.destroy(new Error('test over')));
  return { gateway, server, agent, tunnels, outcomes };
}

/** A destination that does what the test says with its connection. */
async function destination(act: (socket: Socket) => void): Promise<number> {
  return listen(net.createServer({ allowHalfOpen: true }, (socket) => act(socket.on('error', () => {}))));
}

/** How the stream of a dial closed: with an error, or without one. */
async function closed({ end }: Established): Promise<Error | undefined> {
  let failure: Error | undefined;
  const stream = streamOf(end);
  stream.on('error', (error) => {
    failure = error;
  });
  stream.resume();
  // It rejects for an error.
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve));
  return failure;
}

describe('two ends on links, which a hub joins', () => {
  test('passes on bytes and both ends, and ends once both streams have', async () => {
    const { gateway, tunnels, outcomes, agent } = await hub();
    const port = await destination((socket) => void socket.pipe(socket));
    const answer = await gateway.dial(request(port));
    const bytes = Buffer.alloc(3_000_000, 'abcdefg');
    streamOf(answer.end).end(bytes);
    assert.ok((await readAll(answer)).equals(bytes));
    await tunnels.idle();
    assert.deepEqual(outcomes, ['closed by caller: ']);
    await until(() => gateway.open + agent.client.open + agent.server.open === 0);
  });

  test('says how much it has passed on, which side has ended, and for how long it was idle', async () => {
    const { gateway, tunnels } = await hub();
    const port = await destination((socket) => socket.once('data', () => socket.write('four')));
    const { end } = await gateway.dial(request(port));
    streamOf(end).write('six by');
    await once(streamOf(end), 'data');
    const [tunnel] = [...tunnels];
    assert.deepEqual([tunnel?.up, tunnel?.down, tunnel?.queued, tunnel?.halfClosed], [6, 4, 0, undefined]);
    await until(() => (tunnel?.idleMs ?? 0) > 0);
    streamOf(end).end();
    await until(() => tunnel?.halfClosed === 'caller');
    assert.equal(tunnel?.idleMs, 0);
    end.abort(new Error('enough'));
    await tunnels.idle();
  });

  test('keeps no more for a reader that does not read than the window of its stream', async () => {
    const { gateway, tunnels } = await hub();
    const stalled: Socket[] = [];
    const port = await destination((socket) => void stalled.push(socket.pause()));
    const { end } = await gateway.dial(request(port));
    // More than all windows and sockets on the way hold.
    for (let i = 0; i < 1000; i++) streamOf(end).write(Buffer.alloc(64 * 1024));
    const [tunnel] = [...tunnels];
    let [up, looks] = [0, 0];
    const stalls = () => {
      looks = tunnel?.up === up ? looks + 1 : 0;
      up = tunnel?.up ?? 0;
      return up > 0 && looks === 20;
    };
    await until(stalls, { every: 5 });
    assert.ok((tunnel?.queued ?? 0) > 0, 'it does not stall');
    assert.ok((tunnel?.queued ?? 0) <= 4 * 1024 * 1024, `${tunnel?.queued} bytes wait`);
    for (const socket of stalled) socket.destroy();
    await tunnels.idle();
  });

  test('one side that goes away aborts the other, once it has what was read before', async () => {
    const { gateway, tunnels, outcomes } = await hub();
    const gone = await destination((socket) => void socket.once('data', () => socket.resetAndDestroy()));
    const cut = await gateway.dial(request(gone));
    streamOf(cut.end).write('x');
    await closed(cut);
    await tunnels.idle();
    const heard = Promise.withResolvers<void>();
    const port = await destination((socket) => socket.resume().once('end', () => heard.resolve()));
    const answer = await gateway.dial(request(port));
    answer.end.abort(new Error('the caller went away'));
    await heard.promise;
    await tunnels.idle();
    assert.deepEqual(outcomes, ['failed by destination: destination went away', 'failed by caller: caller went away']);
  });

  test('a cut by the plane reaches both sides with what cut it', async () => {
    const { gateway, tunnels, outcomes, agent } = await hub();
    const port = await destination((socket) => socket.resume());
    const answer = await gateway.dial(request(port));
    const [{ dial } = { dial: { id: '' } }] = [...tunnels];
    tunnels.abort(dial.id, new PlaneEnded('an operator ended it', { by: 'operator' }));
    const failure = await closed(answer);
    assert.ok(failure instanceof PlaneEnded);
    assert.equal(failure.by, 'operator');
    assert.deepEqual(outcomes, ['cut by operator: an operator ended it']);
    await until(() => agent.server.open === 0);
  });

  test('the loss of one link cuts the tunnel on the other, and leaves that link', async () => {
    const { gateway, tunnels, outcomes, agent } = await hub();
    const port = await destination((socket) => socket.resume());
    const answer = await gateway.dial(request(port));
    agent.hubSocket.destroy();
    const failure = await closed(answer);
    assert.ok(failure instanceof PlaneEnded && !(failure instanceof SessionLost), `${failure}`);
    await tunnels.idle();
    assert.match(outcomes.join(), /^cut by \w+: agent a1: /);
    assert.equal(gateway.usable, true);
  });

  test('a link that is lost after its destination has ended takes nothing from the caller', async () => {
    const { gateway, tunnels, outcomes, agent } = await hub();
    const port = await destination((socket) => void socket.resume().end('the answer'));
    const answer = await gateway.dial(request(port));
    assert.equal(String(await readAll(answer)), 'the answer');
    const failure = closed(answer);
    agent.hubSocket.destroy();
    await tunnels.idle();
    assert.deepEqual(outcomes, ['closed by destination: ']);
    assert.equal(await failure, undefined);
  });

  test('what came ahead of the answer is passed on, and so is the end of a caller that has sent everything', async () => {
    const asked = Promise.withResolvers<void>();
    const answers = Promise.withResolvers<void>();
    const { gateway, tunnels, outcomes } = await hub(async (dial) => {
      asked.resolve();
      await answers.promise;
      return dialTcp(dial);
    });
    const port = await destination((socket) => void socket.pipe(socket));
    const answer = gateway.dial(request(port));
    await asked.promise;
    answers.resolve();
    const established = await answer;
    streamOf(established.end).end('early');
    assert.equal(String(await readAll(established)), 'early');
    await tunnels.idle();
    assert.deepEqual(outcomes, ['closed by caller: ']);
  });

  test('a side that was reset after it had sent everything is no failure, and the other is closed after a while', async () => {
    const { gateway, tunnels, outcomes } = await hub();
    const port = await destination((socket) => socket.resume());
    const { end } = await gateway.dial(request(port));
    streamOf(end).end('all of it');
    const [tunnel] = [...tunnels];
    await until(() => tunnel?.halfClosed === 'caller');
    end.abort(new Error('gone'));
    await tunnels.idle();
    assert.deepEqual(outcomes, ['closed by caller: ']);
  });

  test('a tunnel that stays half-closed and silent is cut', async () => {
    const { gateway, tunnels, outcomes } = await hub(dialTcp, 10);
    const port = await destination((socket) => socket.resume());
    const answer = await gateway.dial(request(port));
    streamOf(answer.end).end();
    const failure = await closed(answer);
    assert.ok(failure instanceof PlaneEnded && failure.by === 'limit', `${failure}`);
    await tunnels.idle();
    assert.deepEqual(outcomes, ['cut by limit: half-closed and silent for 0.01 s']);
  });

  test('an idle tunnel ends in order, and a request that comes meanwhile cuts it', async () => {
    for (const [late, outcome] of [
      [false, /^closed by destination/],
      [true, /^cut by path: a request came/],
    ] as const) {
      const { gateway, tunnels, outcomes } = await hub();
      const ended = Promise.withResolvers<Socket>();
      const port = await destination((socket) => socket.resume().once('end', () => ended.resolve(socket)));
      const answer = await gateway.dial(request(port));
      using _drain = tunnels.endIdle('hub', 1);
      const socket = await ended.promise;
      if (late) streamOf(answer.end).write('GET /');
      else socket.end();
      streamOf(answer.end)
        .resume()
        .on('error', () => {})
        .once('end', () => streamOf(answer.end).end());
      await tunnels.idle();
      assert.match(outcomes.join(), outcome);
    }
  });

  test('an idle tunnel whose destination speaks as it ends, and does not end, is cut', async (context) => {
    const { gateway, tunnels, outcomes } = await hub();
    const port = await destination((socket) => socket.resume().once('end', () => socket.write('the first half')));
    const answer = await gateway.dial(request(port));
    const failure = closed(answer);
    const [tunnel] = [...tunnels] as Tunnel[];
    let late: Due | undefined;
    const enter = context.mock.method(deadlines, 'enter', (due: Due) => {
      late = due;
    });
    tunnel?.endIdle();
    enter.mock.restore();
    await until(() => (tunnel?.down ?? 0) > 0);
    late?.remind();
    await until(() => outcomes.length > 0);
    assert.match(outcomes.join(), /^cut by path: the destination/);
    assert.ok((await failure) instanceof PlaneEnded);
  });

  test('a tunnel is not idle while what its destination has said waits for its tenant’s turn', async () => {
    const limits = { bytesPerSecond: 0.001, bytesQueued: Number.POSITIVE_INFINITY } as MeterLimits;
    const { gateway, tunnels, agent } = await hub(dialTcp, undefined, new ByteMeter('acme', () => limits));
    const accepted = Promise.withResolvers<Socket>();
    const port = await destination(accepted.resolve);
    const { end } = await gateway.dial(request(port));
    const socket = await accepted.promise;
    socket.write('one');
    await once(streamOf(end), 'data');
    const [tunnel] = [...tunnels];
    const before = agent.hubSocket.bytesRead;
    socket.write('two');
    await until(() => agent.hubSocket.bytesRead >= before + 'two'.length);
    assert.deepEqual([tunnel?.down, tunnel?.idleMs], [3, 0]);
    end.abort(new Error('enough'));
    await tunnels.idle();
  });

  test('a stream that was reset before its end had a user tells that user', async () => {
    const { gateway } = await hub();
    const port = await destination((socket) => socket.resume());
    const { end } = await gateway.dial(request(port));
    const { streams } = gateway as unknown as { readonly streams: Iterable<Http2Stream> };
    for (const stream of streams) stream.reset(ErrorCode.PROTOCOL_ERROR);
    const told = Promise.withResolvers<Error | undefined>();
    end.use({ onData() {}, onDrain() {}, onEnd() {}, onClose: told.resolve }, 'acme');
    assert.equal((await told.promise)?.message, 'stream was reset with PROTOCOL_ERROR');
  });

  test('a reset that no side of ours sends is a failure with its code', async () => {
    const { gateway, server, tunnels, outcomes } = await hub();
    const port = await destination((socket) => socket.resume());
    await gateway.dial(request(port));
    const { streams } = gateway as unknown as { readonly streams: Iterable<Http2Stream> };
    for (const stream of streams) stream.reset(ErrorCode.PROTOCOL_ERROR);
    await tunnels.idle();
    assert.deepEqual(outcomes, ['failed by caller: stream was reset with PROTOCOL_ERROR']);
    assert.equal(server.open, 0);
  });
});

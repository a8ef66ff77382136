import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { DialError, type PlaneEnded, planeEvents } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { Http2Link } from '@isthmus/wire';
import { Callers, type CallersOptions } from '../callers.ts';
import { TRANSPORT } from '../defaults.ts';
import type { Listener } from '../listen.ts';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { requestHoldLink } from './hold.ts';
import { dialTcp, listen, readAll, request } from './testing.ts';

/** A gateway's port for callers. */
async function opened(more: Partial<CallersOptions> = {}): Promise<Listener> {
  const callers = new Callers({
    identifyCaller: () => ({ tenant: 'default', caller: { identity: 'certificate' } }),
    events: planeEvents(),
    dial: dialTcp,
    attach: () => assert.fail('nothing attaches'),
    timeout: 60_000,
    keepaliveTime: 60_000,
    ...more,
  });
  cleanups.push(async () => {
    await callers.endCalls(0);
    await callers.close();
  });
  return callers.open({ address: { host: '127.0.0.1', port: 0 } });
}

async function connectedTo({ address }: Listener): Promise<Socket> {
  const port = Number(address.split(':').at(-1));
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).setNoDelay(true);
  cleanups.push(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** A connection to a gateway's port for callers, and the gateway's end of it. */
async function connected(
  more: Partial<CallersOptions> = {},
): Promise<[caller: Socket, gateway: () => Socket | undefined]> {
  const listener = await opened(more);
  return [await connectedTo(listener), () => [...listener.connections][0]];
}

/** A caller's connection to a gateway, on which it may begin a link. */
async function callersSocket(more: Partial<CallersOptions> = {}): Promise<Socket> {
  const [socket] = await connected(more);
  await requestHoldLink(socket, 60_000);
  return socket;
}

const HEAD = 'GET /hold HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: isthmus-hold\r\n\r\n';

/** Sends pieces, each once the gateway has read the one before it, and returns the first line of the answer. */
async function answerTo(pieces: readonly string[], more: Partial<CallersOptions> = {}): Promise<string> {
  const [socket, gateway] = await connected(more);
  const answered = once(socket, 'data') as Promise<[Buffer]>;
  let sent = 0;
  for (const piece of pieces) {
    socket.write(piece);
    sent += piece.length;
    while (!socket.readableEnded && (gateway()?.bytesRead ?? 0) < sent) await new Promise((done) => setImmediate(done));
  }
  const [answer] = await answered;
  socket.destroy();
  return answer.toString('latin1').split('\r\n', 1)[0] as string;
}

test('a request of isthmus hold is known however it is cut, and whichever fields it has', async () => {
  for (const modes of [{}, { mode: 'grpc' }] as const) {
    for (let cut = 1; cut < HEAD.length; cut++)
      assert.equal(
        await answerTo([HEAD.slice(0, cut), HEAD.slice(cut)], modes),
        'HTTP/1.1 101 Switching Protocols',
        `cut at ${cut}`,
      );
    assert.equal(await answerTo([...HEAD], modes), 'HTTP/1.1 101 Switching Protocols', 'byte by byte');
  }
  const other = HEAD.replace('host: gateway', 'Host: proxied.example\r\nVia: 1.1 balancer').replace(
    'upgrade: i',
    'Upgrade: i',
  );
  assert.equal(await answerTo([other]), 'HTTP/1.1 101 Switching Protocols');
});

test('what only begins like a request of isthmus hold is answered as any other', async () => {
  for (const path of ['/holder', '/hol', '/'])
    assert.equal(
      await answerTo(['GET /', `${path.slice(1)} HTTP/1.1\r\n\r\n`]),
      'HTTP/1.1 405 Method Not Allowed: this port serves CONNECT, not "GET"',
    );
  assert.match(await answerTo([HEAD.replace('upgrade: isthmus-hold', 'x: y')]), /^HTTP\/1\.1 400 /);
});

test('a request of a caller that is refused is over, even if the caller never ends it', async () => {
  const socket = await callersSocket();
  const session = new Http2Link({ role: 'client', socket });
  for (const head of [
    { ':method': 'CONNECT', ':authority': '127.0.0.1:1' },
    { ':method': 'POST', ':scheme': 'http', ':authority': 'link', ':path': '/x' },
    { ':method': 'GET', ':scheme': 'http', ':authority': 'link', ':path': '/x' },
  ]) {
    const stream = session
      .request(head)
      .on('error', () => {})
      .resume();
    const statuses: unknown[] = [];
    stream.on('response', (answer) => statuses.push(answer[':status']));
    await once(stream, 'close');
    assert.deepEqual([statuses.length, session.open], [1, 0], `${head[':method']} ${statuses}`);
  }
});

test('a caller has as many streams on a link as by gRPC', async () => {
  const socket = await callersSocket();
  const session = new Http2Link({ role: 'client', socket });
  await new Promise<void>((resolve) => session.ping(resolve));
  const head = { ':method': 'CONNECT', ':authority': '127.0.0.1:1' };
  const open = () => session.request(head).on('error', () => {});
  assert.throws(() => {
    while (session.open <= TRANSPORT.grpcStreams) open();
  }, /the other side allows only 10000 streams/);
  assert.equal(session.open, TRANSPORT.grpcStreams);
  session.destroy();
});

test('a tenant has a bounded number of links, and a closed one makes room', async () => {
  const callers = await opened();
  const sockets = await Promise.all(Array.from({ length: TRANSPORT.holdLinksOfTenant }, () => connectedTo(callers)));
  await Promise.all(sockets.map((socket) => requestHoldLink(socket, 60_000)));
  const ask = async () => requestHoldLink(await connectedTo(callers), 60_000);
  await assert.rejects(ask(), /503 tenant default has 64 links of isthmus hold/);
  const [gone] = [...callers.connections];
  gone?.destroy();
  await once(gone as Socket, 'close');
  await ask();
});

test('a caller that goes as it gets its link, or has too many connections, is no fault of ours', async () => {
  const events = planeEvents();
  const seen: string[] = [];
  events.on('fault', (where, _remote, { message }) => void seen.push(`fault ${where}: ${message}`));
  events.on('refused', (where, _remote, { message }) => void seen.push(`refused ${where}: ${message}`));
  let room = true;
  const listener = await opened({
    events,
    identifyCaller: ({ socket }) => {
      if (!room) return new DialError('connection_limit_reached', 'tenant acme has 2 connections of callers');
      // As one that was reset is seen by the next write.
      socket.destroy(new Error('write EPIPE'));
      return { tenant: 'default', caller: { identity: 'certificate' } };
    },
  });
  await assert.rejects(requestHoldLink(await connectedTo(listener), 60_000), /connection closed before an answer/);
  room = false;
  const refused = requestHoldLink(await connectedTo(listener), 60_000);
  await assert.rejects(refused, /503 tenant acme has 2 connections of callers/);
  assert.deepEqual(seen, ['refused hold links: tenant acme has 2 connections of callers']);
});

test('a credential that is revoked cuts the tunnels of its link, also for the agents, and closes the link', async () => {
  const events = planeEvents();
  const revoke = Promise.withResolvers<(reason: Error) => void>();
  const socket = await callersSocket({
    events,
    identifyCaller(peer) {
      revoke.resolve((reason) => peer.end(reason));
      return { tenant: 'default', caller: { identity: 'certificate' } };
    },
  });
  const client = new LinkClient({ socket, peer: 'gateway', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  const destination = net.createServer((accepted) => accepted.on('error', () => {}).resume());
  const { end } = await client.dial(request(await listen(destination)));
  const failed = once(streamOf(end), 'error');
  const closed = once(events, 'tunnel:close');
  (await revoke.promise)(new Error('the certificate was revoked'));
  const [cut] = (await failed) as [PlaneEnded];
  assert.equal(cut.by, 'credential');
  const [, { by }] = await closed;
  assert.equal(by, 'credential');
  assert.match((await client.closed).message, /the certificate was revoked/);
});

test("a caller's tunnel goes on after its destination has ended", async () => {
  const socket = await callersSocket();
  const client = new LinkClient({ socket, peer: 'gateway', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  const got = Promise.withResolvers<string>();
  const destination = net.createServer({ allowHalfOpen: true }, (accepted) => {
    let text = '';
    accepted.end('bye').on('data', (chunk) => {
      text += chunk;
    });
    accepted.once('end', () => got.resolve(text));
  });
  const established = await client.dial(request(await listen(destination)));
  assert.equal(`${await readAll(established)}`, 'bye');
  streamOf(established.end).end('more');
  assert.equal(await got.promise, 'more');
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { type PlaneEnded, planeEvents } from '@isthmus/tunnel';
import { Http2Session } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { HoldLinks, requestHoldLink } from './hold.ts';
import { LinkServer } from './server.ts';
import { dialTcp, listen, readAll, request } from './testing.ts';

/** A caller's connection to a gateway, and the gateway's link on it. */
async function callersLink(): Promise<{ server: LinkServer; socket: Socket }> {
  const opened = deferred<LinkServer>();
  const dialler = { tenant: 'default', caller: { via: 'hold', identity: 'certificate' } } as const;
  const open = (socket: Socket) =>
    opened.resolve(
      new LinkServer({ socket, peer: 'hold', role: 'gateway', dial: dialTcp, events: planeEvents(), dialler }),
    );
  const port = await listen(net.createServer({ allowHalfOpen: true }, open));
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  const server = await opened.promise;
  cleanups.push(() => server.destroy(new Error('test over')));
  return { server, socket };
}

test('a request of a caller that is refused is over, even if the caller never ends it', async () => {
  const { socket } = await callersLink();
  const session = new Http2Session({ role: 'client', socket });
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
  const { socket } = await callersLink();
  const session = new Http2Session({ role: 'client', socket });
  await new Promise<void>((resolve) => session.ping(resolve));
  const head = { ':method': 'CONNECT', ':authority': '127.0.0.1:1' };
  const open = () => session.request(head).on('error', () => {});
  assert.throws(() => {
    while (session.open <= TRANSPORT.grpcStreams) open();
  });
  assert.equal(session.open, TRANSPORT.grpcStreams);
  session.destroy();
});

test('a credential that is revoked cuts the tunnels of its link, also for the agents, and closes the link', async () => {
  const events = planeEvents();
  const revoke = deferred<(reason: Error) => void>();
  const links = new HoldLinks({
    identify(peer) {
      revoke.resolve((reason) => peer.end(reason));
      return { tenant: 'default', caller: { identity: 'certificate' } };
    },
    events,
    dial: dialTcp,
    attach: () => assert.fail('nothing attaches'),
    timeout: 60_000,
  });
  const accept = links.before(undefined);
  const gateway = net.createServer({ allowHalfOpen: true }, (accepted) =>
    accepted.once('data', (first: Buffer) => accept(accepted, first)),
  );
  const socket = net.connect({ port: await listen(gateway), host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  await requestHoldLink(socket, 60_000);
  const client = new LinkClient({ socket, peer: 'gateway' });
  cleanups.push(() => client.destroy(new Error('test over')));
  const destination = net.createServer((accepted) => accepted.on('error', () => {}).resume());
  const { end } = await client.dial(request(await listen(destination)));
  const failed = once(end.stream, 'error');
  const closed = once(events, 'tunnel:close');
  (await revoke.promise)(new Error('the certificate was revoked'));
  const cut = end.explain?.((await failed)[0]) as PlaneEnded | undefined;
  assert.equal(cut?.by, 'credential');
  const [, { closedBy }] = await closed;
  assert.equal(closedBy, 'credential');
  assert.match((await client.closed).message, /the certificate was revoked/);
});

test("a caller's tunnel goes on after its destination has ended", async () => {
  const { socket } = await callersLink();
  const client = new LinkClient({ socket, peer: 'gateway' });
  cleanups.push(() => client.destroy(new Error('test over')));
  const got = deferred<string>();
  const destination = net.createServer({ allowHalfOpen: true }, (accepted) => {
    let text = '';
    accepted.end('bye').on('data', (chunk) => {
      text += chunk;
    });
    accepted.once('end', () => got.resolve(text));
  });
  const established = await client.dial(request(await listen(destination)));
  assert.equal(`${await readAll(established)}`, 'bye');
  established.end.stream.end('more');
  assert.equal(await got.promise, 'more');
});

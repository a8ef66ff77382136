import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { type PlaneEnded, planeEvents } from '@isthmus/tunnel';
import { Http2Link } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { HoldLinks, requestHoldLink } from './hold.ts';
import { dialTcp, listen, readAll, request } from './testing.ts';

/** A caller's connection to a gateway, on which it may begin a link. */
async function callersSocket(more: Partial<ConstructorParameters<typeof HoldLinks>[0]> = {}): Promise<Socket> {
  const links = new HoldLinks({
    identifyCaller: () => ({ tenant: 'default', caller: { identity: 'certificate' } }),
    events: planeEvents(),
    dial: dialTcp,
    attach: () => assert.fail('nothing attaches'),
    timeout: 60_000,
    ...more,
  });
  cleanups.push(() => links.close());
  const accept = links.before(undefined);
  const gateway = net.createServer({ allowHalfOpen: true }, (accepted) =>
    accepted.once('data', (first: Buffer) => accept(accepted, first)),
  );
  const socket = net.connect({ port: await listen(gateway), host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  await requestHoldLink(socket, 60_000);
  return socket;
}

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
  const failed = once(end.stream, 'error');
  const closed = once(events, 'tunnel:close');
  (await revoke.promise)(new Error('the certificate was revoked'));
  const cut = end.explain?.((await failed)[0]) as PlaneEnded | undefined;
  assert.equal(cut?.by, 'credential');
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
  established.end.stream.end('more');
  assert.equal(await got.promise, 'more');
});

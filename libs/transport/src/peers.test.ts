import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep, setImmediate as tick } from 'node:timers/promises';
import { createServer } from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { changed, until } from '@isthmus/runtime/testing';
import { type Ask, DialAbort, planeEvents } from '@isthmus/tunnel';
import { Http2Link, WIRE } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';
import { PeerLinks } from './peer-links.ts';
import { servePeers } from './peer-server.ts';

test('a gateway whose files cannot be read leaves no connection at a hub', async (t) => {
  let connections = 0;
  const server = net.createServer((socket) => {
    connections++;
    socket.on('error', () => {});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const events = planeEvents();
  const links = new PeerLinks({ tls: { ca: '/not/there.pem' }, events });
  t.after(() => {
    links.close();
    server.close();
  });
  const failed = new Promise<Error>(
    (resolve) => void events.once('peer:failure', (_hub, _at, error) => resolve(error)),
  );
  links.sync([{ hubId: 'h1', peerAddress: `127.0.0.1:${port}`, incarnation: 1, draining: false }]);
  assert.match((await failed).message, /not.there\.pem/);
  // Connections are accepted in their order.
  const last = net.connect(port, '127.0.0.1');
  await once(server, 'connection');
  last.destroy();
  assert.equal(connections, 1);
});

/** A gateway, what its links' events say, and what a hub needs to prove its role. */
async function gateway(context: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'peers-'));
  context.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'peers');
  const [hub, own] = [await authority.peer(['hub']), await authority.peer(['gateway'])];
  const events = planeEvents();
  const said: string[] = [];
  events.on('peer:open', (hubId, address) => void said.push(`${hubId} at ${address}: open`));
  events.on('peer:close', (hubId, address) => void said.push(`${hubId} at ${address}: closed`));
  events.on('peer:suspect', (hubId, address) => void said.push(`${hubId} at ${address}: silent`));
  events.on('peer:failure', (hubId, _address, { message }) => void said.push(`${hubId}: ${message}`));
  const links = new PeerLinks({ tls: { ...own, ca: authority.cert }, events });
  context.after(() => links.close());
  const goTo = (peerAddress: string, incarnation = 1, draining = false) =>
    links.sync([{ hubId: 'h1', peerAddress, incarnation, draining }]);
  /** A hub whose dials have no answer. */
  const serve = async (hubId = 'h1', address = '127.0.0.1:0') => {
    const never = () => new Promise<never>(() => {});
    const tls = { ...hub, ca: authority.cert };
    const port = Number(address.split(':')[1]);
    const options = { host: '127.0.0.1', port, tls, hubId, dial: never, attach: never, events: planeEvents() };
    const answer: Ask = async function* () {
      yield hubId;
    };
    const server = await servePeers({ ...options, answer });
    context.after(() => server.close());
    return server;
  };
  return { links, said, goTo, hub, serve };
}

test('a hub that takes a connection and never accepts the link on it is left', async (context) => {
  using _ = changed(TRANSPORT, { peerConnectMs: 500, peerReconnectMs: 500 });
  const { goTo, said, hub } = await gateway(context);
  const tls = { cert: readFileSync(hub.cert), key: readFileSync(hub.key), ALPNProtocols: ['h2'] };
  // It answers PINGs.
  const server = createServer(tls, (socket) => {
    new Http2Link({ role: 'server', socket }).on('begun', () => {}).on('fault', assert.ifError);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  goTo(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  const told = () => said.filter((text) => text.endsWith('it has not accepted the link within 500 ms'));
  await until(() => told().length > 1, 'the end of an attempt, and of another');
});

test('a gateway takes no link of another hub than the one whose address it is', async (context) => {
  const { goTo, said, serve } = await gateway(context);
  goTo((await serve('hub ö')).address);
  await until(() => said.length > 0);
  assert.equal(said[0], "h1: hub hub ö answers where hub h1 should: see that hub's --advertise-address");
});

/** A dial that keeps the link to the hub open until that ends. */
function refusedInTheEnd(links: PeerLinks): Promise<void> {
  const dialled = links.link('h1')?.dial({
    ...{ id: '0000000000000001', tenant: 'default', session: 's', deadline: performance.now() + 60_000 },
    ...{ destination: { host: 'h', port: 1 }, signal: new DialAbort() },
  });
  return assert.rejects(dialled as Promise<unknown>);
}

test('the late end of a link to an address that a hub has left says nothing of its new one', async (context) => {
  const { links, goTo, said, serve } = await gateway(context);
  const [before, after] = [await serve(), await serve()];
  goTo(before.address);
  await until(() => links.link('h1') !== undefined);
  const refused = refusedInTheEnd(links);
  goTo(after.address);
  await until(() => links.link('h1') !== undefined);
  const changes = [`h1 at ${before.address}: open`, `h1 at ${before.address}: closed`, `h1 at ${after.address}: open`];
  assert.deepEqual(said, changes);
  await before.close();
  await refused;
  await tick();
  assert.deepEqual(said, changes);
  assert.notEqual(links.link('h1'), undefined);
});

test('a hub that drains gets no more dials over the links that it has, and answers questions there until it closes', async (context) => {
  const { links, goTo, said, serve } = await gateway(context);
  const hub = await serve();
  goTo(hub.address);
  await until(() => links.ready);
  hub.drain();
  await until(() => links.link('h1') === undefined, 'the end of dials');
  assert.equal(links.ready, false);
  const question = { to: { member: 'h1' }, method: 'GetStatus', message: {}, reads: true } as const;
  const operator = { identity: 'alice', remote: '10.0.0.1' };
  const answers: unknown[] = [];
  for await (const answer of links.ask('h1')?.({ ...question, operator }, AbortSignal.timeout(60_000)) ?? [])
    answers.push(answer);
  assert.deepEqual(answers, ['h1']);
  assert.deepEqual(said, [`h1 at ${hub.address}: open`]);
  await hub.close();
  await until(() => links.ask('h1') === undefined, 'the end of the link');
});

test('a gateway has a link to the next process of a hub while that of the last one is still open', async (context) => {
  const { links, goTo, said, serve } = await gateway(context);
  const { address, drain, close } = await serve();
  goTo(address);
  await until(() => links.ready);
  const refused = refusedInTheEnd(links);
  drain();
  await until(() => !links.ready, 'the drain');
  await serve('h1', address);
  goTo(address, 2);
  await until(() => said.length === 3, 'the end of the link, and another');
  assert.deepEqual(said, [`h1 at ${address}: open`, `h1 at ${address}: closed`, `h1 at ${address}: open`]);
  assert.equal(links.ready, true);
  await close();
  await refused;
});

test('a gateway keeps its link to a hub that has started again, once the registry says so', async (context) => {
  const { links, goTo, said, serve } = await gateway(context);
  const { address, close } = await serve();
  goTo(address);
  await until(() => links.ready);
  await close();
  await until(() => !links.ready, 'the end of the link');
  await serve('h1', address);
  await until(() => links.ready, 'another link');
  const before = [...said];
  goTo(address, 2);
  await tick();
  assert.deepEqual(said, before);
  assert.equal(links.ready, true);
});

for (const registers of ['before', 'after'])
  test(`a gateway whose link to a hub is silent has one to its next process at once, which registers ${registers} that is noticed`, async (context) => {
    using _ = changed(WIRE, { pingAfterChecks: 1, suspectAfterChecks: 2, deadAfterChecks: 1000 });
    const { links, goTo, said, serve } = await gateway(context);
    const hub = await serve();
    let to = Number(hub.address.split(':')[1]);
    const path = new Set<net.Socket>();
    const balancer = net.createServer((near) => {
      const far = net.connect(to, '127.0.0.1');
      near.pipe(far).pipe(near);
      for (const socket of [near, far]) path.add(socket.on('error', () => {}));
    });
    balancer.listen(0, '127.0.0.1');
    await once(balancer, 'listening');
    context.after(() => {
      balancer.close();
      for (const socket of path) socket.destroy();
    });
    const address = `127.0.0.1:${(balancer.address() as AddressInfo).port}`;
    goTo(address);
    await until(() => links.ready);
    const next = await serve();
    for (const socket of path) socket.unpipe().pause();
    if (registers === 'after') await until(() => said.length === 2, 'the silence');
    to = Number(next.address.split(':')[1]);
    goTo(address, 2);
    await until(() => said.length === 4, 'another link');
    assert.equal(links.ready, true);
    const opened = `h1 at ${address}: open`;
    assert.deepEqual(said, [opened, `h1 at ${address}: silent`, `h1 at ${address}: closed`, opened]);
  });

test('a gateway opens no link to a hub that drains, and one to its next process at once', async (context) => {
  using _ = changed(TRANSPORT, { linkProvenMs: 0 });
  const { links, goTo, said, serve } = await gateway(context);
  const { address, close } = await serve();
  goTo(address);
  await until(() => links.ready);
  goTo(address, 1, true);
  await close();
  await until(() => said.length === 2, 'the end of the link');
  await sleep(100);
  assert.deepEqual(said, [`h1 at ${address}: open`, `h1 at ${address}: closed`]);
  await serve('h1', address);
  goTo(address, 2);
  await until(() => links.ready, 'a link');
  assert.deepEqual(said, [`h1 at ${address}: open`, `h1 at ${address}: closed`, `h1 at ${address}: open`]);
});

test('a gateway that starts while a hub drains does not wait for that', async (context) => {
  const { links, said, serve } = await gateway(context);
  const [{ address: peerAddress }, leaving] = [await serve(), await serve('h2')];
  await leaving.close();
  links.sync([
    { hubId: 'h1', peerAddress, incarnation: 1, draining: false },
    { hubId: 'h2', peerAddress: leaving.address, incarnation: 1, draining: true },
  ]);
  await until(() => links.ready, 'a gateway that is ready');
  assert.deepEqual(said, [`h1 at ${peerAddress}: open`]);
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import type { Packet } from '@isthmus/proto';
import { until } from '@isthmus/runtime/testing';
import { type Dial, DialError, PlaneEnded, planeEvents, SessionLost } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { PacketClient } from './dial.ts';
import { PacketServer } from './serve.ts';
import {
  channelPair,
  collect,
  destination,
  dialThrough,
  established,
  plane,
  request,
  serve,
  silent,
  types,
} from './testing.ts';

test('a dial becomes a tunnel that carries bytes both ways', async () => {
  const { client, hub, agent, requests, fars } = plane();
  const { end, agentId, sessionId, hubId } = await client.dial(request());
  assert.deepEqual({ agentId, sessionId, hubId }, { agentId: 'a1', sessionId: 's1', hubId: 'h1' });
  assert.deepEqual(requests[0]?.destination, { host: '::1', port: 443 });
  assert.match(requests[0]?.id ?? '', /^[0-9a-f]{16}$/);
  streamOf(end).write('up');
  assert.equal(String((await once(fars[0] as Duplex, 'data'))[0]), 'up');
  fars[0]?.write('down');
  assert.equal(String((await once(streamOf(end), 'data'))[0]), 'down');
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DATA']);
  assert.deepEqual(types(agent), ['DIAL_RSP', 'DATA']);
  const [dialled, answer] = [hub.sent[0], agent.sent[0]] as [Packet & { random: bigint }, Packet & { random: bigint }];
  assert.ok(dialled.random > 0n && dialled.random < 1n << 63n);
  assert.equal(answer.random, dialled.random);
});

test('what the destination sent arrives whole before the CLOSE_RSP of its end', async () => {
  const { client, agent, fars, served, outcomes } = plane();
  const { end } = await client.dial(request());
  const received = collect(streamOf(end));
  fars[0]?.end('x'.repeat(300_000));
  assert.equal((await received).length, 300_000);
  streamOf(end).end();
  await until(() => served.open === 0 && client.open === 0, 'tunnel gone');
  assert.deepEqual(agent.sent.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
  assert.equal(types(agent).filter((type) => type === 'CLOSE_RSP').length, 1);
  assert.deepEqual(outcomes, [{ how: 'closed', by: 'destination' }]);
});

test('a close from the dialling side is answered by a CLOSE_RSP, behind the data it had sent', async () => {
  const { client, hub, agent, fars, served, outcomes } = plane();
  const { end } = await client.dial(request());
  streamOf(end).resume();
  streamOf(end).end('last words');
  const received = collect(fars[0] as Duplex);
  assert.equal(await received, 'last words');
  fars[0]?.end();
  await until(() => served.open === 0 && client.open === 0, 'tunnel gone');
  assert.deepEqual(types(hub), ['DIAL_REQ', 'DATA', 'CLOSE_REQ']);
  assert.deepEqual(agent.sent.at(-1), { type: 'CLOSE_RSP', connectID: 1n, error: '' });
  assert.equal(outcomes[0]?.by, 'caller');
});

test('a DIAL_CLS that crosses the DIAL_RSP ends the tunnel', async () => {
  const { hub, agent, served, fars } = serve();
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until(() => types(agent).includes('DIAL_RSP'), 'tunnel');
  hub.send({ type: 'DIAL_CLS', random: 5n });
  await until(() => served.open === 0, 'tunnel gone');
  assert.equal(agent.sent.at(-1)?.type, 'CLOSE_RSP');
  assert.equal(fars.length, 1);
});

test('packets of an unknown connection are answered by CLOSE_RSP, once per connection', async () => {
  const { hub, agent } = serve();
  for (let i = 0; i < 3; i++) hub.send({ type: 'DATA', connectID: 9n, error: '', data: Buffer.from('x') });
  hub.send({ type: 'DATA', connectID: 0n, error: '', data: Buffer.from('x') });
  hub.send({ type: 'CLOSE_RSP', connectID: 12n, error: '' });
  hub.send({ type: 'CLOSE_REQ', connectID: 10n });
  await until(() => agent.sent.length === 2, 'answers');
  assert.deepEqual(agent.sent, [
    { type: 'CLOSE_RSP', connectID: 9n, error: 'unrecognized connectID' },
    { type: 'CLOSE_RSP', connectID: 10n, error: 'Unknown connectID' },
  ]);
});

test('a hub answers data of an unknown connection by CLOSE_REQ, once', async () => {
  const [hub, agent] = channelPair();
  dialThrough(hub);
  for (let i = 0; i < 3; i++) agent.send({ type: 'DATA', connectID: 9n, error: '', data: Buffer.from('x') });
  agent.send({ type: 'CLOSE_RSP', connectID: 10n, error: '' });
  agent.send({ type: 'DATA', connectID: 11n, error: '', data: Buffer.from('x') });
  await until(() => hub.sent.length === 2, 'answers');
  assert.deepEqual(hub.sent, [
    { type: 'CLOSE_REQ', connectID: 9n },
    { type: 'CLOSE_REQ', connectID: 11n },
  ]);
});

test('answers to unknown connections are dropped while the channel is full of them', async () => {
  const { hub, agent } = serve();
  agent.full = true;
  for (let id = 1n; id <= 4_000n; id++) hub.send({ type: 'CLOSE_REQ', connectID: id });
  await until(() => agent.sent.length === 1, 'one answer went out');
  agent.drain();
  await until(() => agent.sent.length > 1, 'the rest');
  assert.equal(agent.sent.length, 1 + 1_024);
});

test('a repeated DIAL_REQ is the same dial', async () => {
  const { hub, agent, requests } = serve();
  const packet: Packet = { type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n };
  hub.send(packet);
  hub.send(packet);
  hub.send({ ...packet, random: 6n });
  await until(() => agent.sent.length === 2, 'two answers');
  assert.equal(requests.length, 2);
});

test('tunnels take turns on a full channel', async () => {
  const { client, hub } = plane();
  const ends = await Promise.all([client.dial(request()), client.dial(request()), client.dial(request())]);
  hub.full = true;
  for (const { end } of ends) streamOf(end).write(Buffer.alloc(200 * 1024));
  const order = () => hub.sent.flatMap((packet) => (packet.type === 'DATA' ? [packet.connectID] : []));
  for (let sent = 1; sent <= 12; sent++) {
    assert.equal(order().length, sent);
    hub.drainOne();
  }
  // The first was alone when it came back for its second turn.
  assert.deepEqual(order(), [1n, 1n, 2n, 3n, 1n, 2n, 3n, 1n, 2n, 3n, 2n, 3n]);
  for (const { end } of ends) end.abort(new Error('done'));
  await until(() => client.open === 0, 'all closed');
});

test('when the channel breaks, tunnels are lost and pending dials may be tried elsewhere', async () => {
  let dials = 0;
  const { near } = destination();
  const { client, hub, served } = plane({
    dial: async (dialled) => (++dials === 1 ? established(near) : silent(dialled)),
  });
  const { end } = await client.dial(request());
  const pending = client.dial(request());
  await until(() => dials === 2, 'both dialled');
  hub.destroy(new Error('link cut'));
  // Named once.
  const lost = { code: 'connection_terminated', retryable: true, message: /^agent a1: (?!agent)/ };
  await assert.rejects(pending, lost);
  await until(() => streamOf(end).destroyed && near.destroyed, 'tunnel closed');
  assert.ok(streamOf(end).errored instanceof SessionLost);
  assert.ok((await client.closed) instanceof SessionLost);
  await assert.rejects(client.dial(request()), lost);
  await until(() => served.open === 0 && client.open === 0, 'nothing open');
});

test('DRAIN reaches the hub, and a client that closes ends its channel behind the last tunnel', async () => {
  const [hub, agent] = channelPair();
  const drained = Promise.withResolvers<void>();
  const events = planeEvents();
  const { near, far } = destination();
  const served = new PacketServer(agent, { dial: async () => established(near), tenant: 't', events });
  const options = { agentId: 'a', sessionId: 's', hubId: 'h', events, drain: () => drained.resolve() };
  const client = new PacketClient(hub, options);
  const { end } = await client.dial(request());
  served.drain();
  await drained.promise;
  client.close();
  await assert.rejects(client.dial(request()), { retryable: true });
  streamOf(end).resume().end();
  far.resume().end();
  assert.ok((await client.closed) instanceof SessionLost);
  assert.equal(await served.closed, undefined);
});

test('a stream is no error that this side ends before a packet passed', async () => {
  const dial: Dial = () => Promise.reject(new DialError('destination_unavailable', 'No agent available'));
  const errors: string[] = [];
  for (const used of [false, true]) {
    const [server, agent] = channelPair();
    const events = planeEvents();
    events.on('packet:error', (_role, code) => errors.push(`${code}, ${used ? 'used' : 'not used'}`));
    const served = new PacketServer(agent, { dial, tenant: 't', events });
    if (used) server.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
    if (used) await until(() => agent.sent.length === 1, 'answered');
    served.destroy(new Error('server is connected already'));
    await served.closed;
  }
  assert.deepEqual(errors, ['Canceled, used']);
});

test('2,000 tunnels that opened and closed leave nothing behind', async () => {
  const dial: Dial = async () => {
    const { near, far } = destination();
    far.resume();
    return established(near);
  };
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  // Of the tests before it.
  const before = timers();
  const { client, served, hub } = plane({ dial });
  for (let done = 0; done < 2000; done += 100) {
    await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const { end } = await client.dial(request());
        if (i % 2 === 0) end.abort(new Error('cut'));
        else streamOf(end).resume().end();
      }),
    );
    await until(() => served.open === 0 && client.open === 0, 'all closed');
    hub.sent.length = 0;
  }
  assert.ok(timers() <= before, `${timers()} timers, and ${before} before`);
});

test('the text of a close says whether the plane ended the tunnel or its destination', async () => {
  const texts: readonly [text: string, byPlane: boolean][] = [
    ['unrecognized connectID', true],
    ['session lost', true],
    ['ended by the plane: the caller read nothing', true],
    ['read tcp 10.0.0.1:443: connection reset by peer', false],
  ];
  for (const [error, byPlane] of texts) {
    const { client, agent } = plane();
    const { end } = await client.dial(request());
    agent.send({ type: 'CLOSE_RSP', connectID: 1n, error });
    await until(() => streamOf(end).destroyed, 'the tunnel ended');
    assert.equal(streamOf(end).errored instanceof PlaneEnded, byPlane, error);
  }
});

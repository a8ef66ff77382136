import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import tls from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { Directory, memoryRegistry, type Registry } from '@isthmus/directory';
import { heldBy } from '@isthmus/directory/testing';
import { RUNTIME } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { type ControlMessage, LinkServer, PeerLinks, requestLink } from '@isthmus/transport';
import { type Ask, type Dial, DialAbort, planeEvents } from '@isthmus/tunnel';
import { endOf } from '@isthmus/tunnel/testing';
import { type HubOptions, hub } from './hub.ts';

function options(registry: Registry): HubOptions {
  return {
    hubId: 'h1',
    zone: '',
    plane: 'p',
    keepaliveTime: 60_000,
    registry,
    directory: new Directory(),
    changed() {},
    agents: { address: { host: '127.0.0.1', port: 0 } },
    advertiseAddress: '10.0.0.1:8097',
    advertiseAgentAddress: '10.0.0.1:8091',
    observation: { events: planeEvents() },
    limits: { sessions: 100, identifiers: 256, identifierBytes: 8192, waiting: 100, waitingOfSource: 100 },
  };
}

/** An agent's connection to a hub, and the hub's answer. */
async function admitted(address: string, agentId: string, more: { readonly pingSeconds?: number } = {}) {
  const socket = net.connect(Number(address.split(':').at(-1)), '127.0.0.1');
  await once(socket, 'connect');
  const hello = { agentId, identifiers: '', tenant: 'default', version: '1', ...more };
  return { socket, answer: await requestLink(socket, 'hub', hello, 60_000) };
}

/** An agent with a link to a hub, which says what it hears there. */
async function agentOf(address: string, dial: Dial = () => Promise.reject(new Error('no dial was expected'))) {
  const { socket } = await admitted(address, 'a1');
  const asked = Promise.withResolvers<void>();
  const told: ControlMessage[] = [];
  let hears = (_message: ControlMessage) => {};
  const link = new LinkServer({
    socket,
    peer: 'hub h1',
    role: 'agent' as const,
    events: planeEvents(),
    dial,
    goaway: () => asked.resolve(),
    receive(message) {
      told.push(message);
      hears(message);
    },
  });
  /** The first message of which this holds. */
  const heard = (wanted: (message: ControlMessage) => boolean) =>
    new Promise<ControlMessage>((resolve) => {
      hears = (message) => wanted(message) && resolve(message);
      for (const message of told) hears(message);
    });
  return { asked: asked.promise, closed: link.closed, heard, link };
}

test('a hub of many agents wants rarer PINGs of the next one at rest, unless that one says how often', {
  timeout: 60_000,
}, async (t) => {
  // The checks of links are the only ones: a second passes in a tick of the test.
  t.mock.timers.enable({ apis: ['setInterval'] });
  t.after(() => t.mock.timers.reset());
  const own = options(memoryRegistry());
  const running = await hub({
    ...own,
    limits: { ...own.limits, sessions: 1000, waiting: 1000, waitingOfSource: 1000 },
  });
  t.after(() => running.close());
  const ask = async (agentId: string, more: { readonly pingSeconds?: number } = {}) => {
    const { socket, answer } = await admitted(running.agentAddress, agentId, more);
    t.after(() => socket.destroy());
    return answer.ping;
  };
  // None of them answers a PING.
  for (let asked = 0; asked < 120; asked += 20)
    await Promise.all(Array.from({ length: 20 }, () => ask('many', { pingSeconds: 300 })));
  const ended = Promise.withResolvers<string>();
  own.observation.events.on('session:close', ({ agentId }, reason) => agentId === 'late' && ended.resolve(reason));
  assert.deepEqual(await ask('late'), { seconds: 2, atRest: true });
  assert.deepEqual(await ask('other', { pingSeconds: 5 }), { seconds: 5, atRest: false });
  const silent = await until(
    () => {
      t.mock.timers.tick(1000);
      return Promise.race([ended.promise, undefined]);
    },
    { what: 'the end of the silent session', every: 0 },
  );
  assert.match(silent, /silent for 9 s/);
});

test('strangers of one address that come again and again hold up agents of that address only', {
  timeout: 60_000,
}, async (t) => {
  using _ = changed(RUNTIME, { handshakeSlots: 4, handshakeSlotMs: 60_000 });
  const running = await hub(options(memoryRegistry()));
  t.after(() => running.close());
  const port = Number(running.agentAddress.split(':').at(-1));
  const come = () => {
    const stranger = net.connect({ port, host: '127.0.0.1', localAddress: '127.0.0.9' });
    stranger.write('GET / HTTP/1.1\r\n\r\n');
    return stranger;
  };
  for (let answered = 0; answered < 4; answered++) {
    const stranger = come();
    await once(stranger, 'data');
    stranger.destroy();
  }
  const last = come();
  last.on('data', () => assert.fail('it is answered'));
  const { socket } = await admitted(running.agentAddress, 'a1');
  for (const each of [socket, last]) each.destroy();
});

test('an agent whose certificate is good holds up no other one of its address, although it is refused', {
  timeout: 60_000,
}, async (t) => {
  using _ = changed(RUNTIME, { handshakeSlots: 1, handshakeSlotMs: 60_000 });
  const dir = await mkdtemp(join(tmpdir(), 'hub-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'agents');
  const [own, peer] = [await authority.server(), await authority.client('edge')];
  const shown = { cert: readFileSync(peer.cert), key: readFileSync(peer.key), ca: readFileSync(authority.cert) };
  for (const authenticate of [undefined, () => Promise.resolve()]) {
    const { limits, ...rest } = options(memoryRegistry());
    const agents = { address: { host: '127.0.0.1', port: 0 }, tls: { ...own, ca: authority.cert } };
    const more = { ...(authenticate && { authenticate }), limits: { ...limits, sessions: 1 } };
    const running = await hub({ ...rest, agents, ...more });
    t.after(() => running.close());
    const port = Number(running.agentAddress.split(':').at(-1));
    const ask = async (agentId: string) => {
      const socket = tls.connect({ ...shown, host: '127.0.0.1', port, checkServerIdentity: () => undefined });
      t.after(() => socket.destroy());
      await once(socket, 'secureConnect');
      const hello = { agentId, identifiers: '', tenant: 'default', token: 'good', version: '1' };
      return requestLink(socket, 'hub', hello, 60_000);
    };
    await ask('a1');
    for (let i = 0; i < 2; i++) await assert.rejects(ask('a1'), /--max-agent-sessions/);
    await ask('a2');
  }
});

const RECORD = { hubId: 'h1', peerAddress: '10.0.0.2:8097', agentAddress: '10.0.0.2:8091', zone: '', draining: false };

test('a hub whose record another process takes says by whom and where, once, and goes on until it is drained', {
  timeout: 60_000,
}, async (t) => {
  const registry = memoryRegistry();
  const running = await hub(options(registry));
  t.after(() => running.close());
  const agent = await agentOf(running.agentAddress);
  assert.equal(running.registration.ok, true);
  const other = { ...RECORD, incarnation: Date.now() + 1000 };
  registry.register(other);
  const { message } = await running.superseded;
  const started = new Date(other.incarnation).toISOString();
  const where = 'gateways reach it at 10.0.0.2:8097, agents reach it at 10.0.0.2:8091';
  const taken = `another process has taken the record of --server-id h1: it started at ${started}, ${where}. Give each server its own id`;
  assert.equal(message, taken);
  assert.deepEqual(
    [running.admission, running.registration],
    ['open', { name: 'registration', ok: false, detail: taken }],
  );
  const drained = running.drain();
  await agent.asked;
  await agent.closed;
  await drained;
  assert.deepEqual((await heldBy(registry)).hubs, [other]);
});

test('a hub’s agents hear of the process that took its record', { timeout: 60_000 }, async (t) => {
  const registry = memoryRegistry();
  const running = await hub(options(registry));
  t.after(() => running.close());
  const agent = await agentOf(running.agentAddress);
  const successor = { ...RECORD, incarnation: Date.now() + 1000 };
  running.membership([successor]);
  await agent.heard((message) => 'changed' in message && message.changed[0]?.address === successor.agentAddress);
});

test('a hub that drains says so of itself, whatever the registry knows of it', { timeout: 60_000 }, async (t) => {
  for (const known of [true, false]) {
    const running = await hub(options(memoryRegistry()));
    t.after(() => running.close());
    const agent = await agentOf(running.agentAddress);
    const record = { ...RECORD, incarnation: 1 };
    running.membership(known ? [record] : []);
    await agent.heard((message) => 'changed' in message && message.changed[0]?.draining === false);
    const drained = running.drain();
    running.membership(known ? [record] : []);
    await agent.heard((message) => 'changed' in message && message.changed[0]?.draining === true);
    await drained;
  }
});

test('a hub that cannot listen is told to nobody', async () => {
  const taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as net.AddressInfo;
  const registry = memoryRegistry();
  const changes: string[] = [];
  const failing = hub({
    ...options(registry),
    agents: { address: { host: '127.0.0.1', port } },
    changed: ({ kind }) => void changes.push(kind),
  });
  await assert.rejects(failing, { code: 'EADDRINUSE' });
  assert.deepEqual([changes, (await heldBy(registry)).hubs], [[], []]);
  taken.close();
});

test('a hub is in the registry when it runs, and its agents when they come', { timeout: 60_000 }, async (t) => {
  const registry = memoryRegistry();
  const running = await hub(options(registry));
  t.after(() => running.close());
  assert.deepEqual(
    (await heldBy(registry)).hubs.map(({ hubId }) => hubId),
    ['h1'],
  );
  const agent = await agentOf(running.agentAddress);
  await agent.heard(({ type }) => type === 'membership');
  assert.deepEqual(
    (await heldBy(registry)).sessions.map(({ agentId }) => agentId),
    ['a1'],
  );
});

test('a hub that leaves takes agents until it drains, and then tells them to go too', {
  timeout: 60_000,
}, async (t) => {
  const running = await hub(options(memoryRegistry()));
  t.after(() => running.close());
  running.leave();
  assert.equal(running.admission, 'leaving');
  const late = await agentOf(running.agentAddress);
  const drained = running.drain();
  assert.equal(running.admission, 'draining');
  await late.asked;
  await late.closed;
  await drained;
});

test('a hub that drains with a tunnel answers questions until it closes, and has drained once the tunnel has ended', {
  timeout: 60_000,
}, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'hub-'));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create(dir, 'peers');
  const [own, gateway] = [await authority.peer(['hub']), await authority.peer(['gateway'])];
  const answer: Ask = async function* () {
    yield 'it answers';
  };
  const peers = { host: '127.0.0.1', port: 0, tls: { ...own, ca: authority.cert } };
  const running = await hub({ ...options(memoryRegistry()), peers, answer });
  t.after(() => running.close());
  const links = new PeerLinks({ tls: { ...gateway, ca: authority.cert }, events: planeEvents() });
  t.after(() => links.close());
  const destination = new PassThrough();
  const end = endOf(destination);
  const dial: Dial = async () => ({ end, agentId: 'a1', sessionId: '', hubId: '', timing: {} });
  await agentOf(running.agentAddress, dial);
  links.sync([{ hubId: 'h1', peerAddress: running.peerAddress, incarnation: 1, draining: false }]);
  await until(() => links.link('h1') !== undefined);
  const [session] = await until(() => (running.sessions.size === 1 ? [...running.sessions.list()] : undefined));
  const request = { id: '0000000000000001', tenant: 'default', session: session?.sessionId ?? '' };
  const to = { destination: { host: 'h', port: 1 }, deadline: performance.now() + 60_000, signal: new DialAbort() };
  const tunnel = await links.link('h1')?.dial({ ...request, ...to });
  let over = false;
  const drained = running.drain().then(() => {
    over = true;
  });
  await until(() => links.link('h1') === undefined, 'the end of dials');
  const question = { to: { member: 'h1' }, method: 'GetStatus', message: {}, reads: true } as const;
  const operator = { identity: 'alice', remote: '10.0.0.1' };
  const asked = async () => {
    const answers: unknown[] = [];
    for await (const each of links.ask('h1')?.({ ...question, operator }, AbortSignal.timeout(60_000)) ?? [])
      answers.push(each);
    return answers;
  };
  assert.deepEqual([await asked(), over, tunnel?.agentId], [['it answers'], false, 'a1']);
  tunnel?.end.abort(new Error('over'));
  await drained;
  assert.deepEqual(await asked(), ['it answers']);
  await running.close();
  await until(() => links.ask('h1') === undefined, 'the end of the link');
});

test('a hub that has drained stays in the registry, as one that drains, until it closes', {
  timeout: 60_000,
}, async () => {
  const registry = memoryRegistry();
  const running = await hub(options(registry));
  const hubs = async () => (await heldBy(registry)).hubs.map(({ hubId, draining }) => ({ hubId, draining }));
  await running.drain();
  assert.deepEqual(await hubs(), [{ hubId: 'h1', draining: true }]);
  await running.close();
  assert.deepEqual(await hubs(), []);
});

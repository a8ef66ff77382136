import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { afterEach, beforeEach, describe, mock, test } from 'node:test';
import { Directory, memoryRegistry, type Registry } from '@isthmus/directory';
import { heldBy } from '@isthmus/directory/testing';
import { until } from '@isthmus/runtime/testing';
import { type ControlMessage, LinkServer, requestLink } from '@isthmus/transport';
import { noTracer, planeEvents } from '@isthmus/tunnel';
import { type HubOptions, hub, Succession } from './hub.ts';

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
    observation: { events: planeEvents(), tracer: noTracer },
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
async function agentOf(address: string) {
  const { socket } = await admitted(address, 'a1');
  const asked = Promise.withResolvers<void>();
  const told: ControlMessage[] = [];
  let hears = (_message: ControlMessage) => {};
  const link = new LinkServer({
    socket,
    peer: 'hub h1',
    role: 'agent' as const,
    events: planeEvents(),
    dial: () => Promise.reject(new Error('no dial was expected')),
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
  assert.match(await ended.promise, /silent for 7\.5 s/);
});

test('a hub counts what an agent says of a stranger at an address of the plane, unless that is a hub it knows', {
  timeout: 60_000,
}, async (t) => {
  const own = options(memoryRegistry());
  const running = await hub(own);
  t.after(() => running.close());
  const refused: string[] = [];
  own.observation.events.on('refused', (where, remote, { message }) => refused.push(`${where}, ${remote}: ${message}`));
  const { link, heard } = await agentOf(running.agentAddress);
  running.membership([]);
  await heard((message) => 'changed' in message && message.changed[0]?.hubId === 'h1');
  link.sendStranger('10.0.0.1:8091', 'h1', 'p');
  link.sendStranger('10.0.0.9:6443', 'x', '');
  link.sendStranger('[::ffff:10.0.0.1]:8091', 'x', '');
  link.sendStranger('10.0.0.1:8091', 'x', 'p');
  await until(() => refused.length > 1);
  assert.deepEqual(refused, [
    `addresses, 10.0.0.1:8091: server x of no plane answers where hub h1 of plane p should: correct that hub's --advertise-agent-address`,
    `addresses, 10.0.0.1:8091: server x of plane p answers where hub h1 of plane p should: it may have just started again; if this goes on, correct that hub's --advertise-agent-address`,
  ]);
});

const RECORD = { hubId: 'h1', peerAddress: '10.0.0.2:8097', agentAddress: '10.0.0.2:8091', zone: '', draining: false };

test('a hub whose id another process takes sends its agents there, says why, and comes back', {
  timeout: 60_000,
}, async (t) => {
  const registry = memoryRegistry();
  const running = await hub(options(registry));
  t.after(() => running.close());
  const agent = await agentOf(running.agentAddress);
  assert.equal(running.registration.ok, true);
  const other = registry.register({ ...RECORD, incarnation: Date.now() + 1000 });
  await agent.asked;
  await agent.closed;
  assert.deepEqual([running.admission, running.registration.ok], ['draining', false]);
  assert.match(
    running.registration.detail,
    /another process was started under --server-id h1, .* until it ends: hub h1 has a later incarnation/,
  );
  await assert.rejects(agentOf(running.agentAddress), { code: 'ECONNREFUSED' });
  await other.close();
  running.reclaim();
  running.reclaim();
  while (!running.registration.ok) await new Promise((resolve) => setTimeout(resolve, 5));
  const back = async () => {
    const again = await agentOf(running.agentAddress);
    await again.heard(({ type }) => type === 'membership');
    return (await heldBy(registry)).sessions.length;
  };
  let sessions = 0;
  while (sessions === 0) sessions = await back().catch(() => 0);
  assert.deepEqual([running.admission, sessions], ['open', 1]);
  await running.drain();
  running.reclaim();
  assert.equal(running.admission, 'draining');
});

test('the successor of a hub is what its agents hear of under its id', { timeout: 60_000 }, async (t) => {
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

describe('succession', () => {
  beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
  afterEach(() => mock.timers.reset());

  const settled = () => new Promise(setImmediate);

  /** A hub that has given way. */
  function gaveWay(shut: () => Promise<void>, begin: () => Promise<void>): Succession {
    const succession = new Succession({
      hubId: 'h1',
      events: planeEvents(),
      shut,
      begin,
      drain: () => Promise.resolve(),
      destroy() {},
    });
    succession.giveWay();
    return succession;
  }

  test('a hub that is closed while it comes back shuts what it has begun', async () => {
    const begun = Promise.withResolvers<void>();
    const done: string[] = [];
    const succession = gaveWay(
      async () => void done.push('shut'),
      async () => {
        done.push('begin');
        await begun.promise;
      },
    );
    succession.reclaim();
    await settled();
    assert.deepEqual(done, ['shut', 'begin']);
    succession.end();
    begun.resolve();
    await settled();
    assert.deepEqual(done, ['shut', 'begin', 'shut']);
  });

  test('a hub that cannot shut what there was says so, and tries again', async () => {
    let shuts = 0;
    let begins = 0;
    const shut = async () => {
      if (shuts++ === 0) throw new Error('stuck');
    };
    const succession = gaveWay(shut, async () => void begins++);
    succession.reclaim();
    await settled();
    assert.deepEqual([succession.check.ok, begins], [false, 0]);
    assert.match(succession.check.detail, /it cannot listen again: stuck/);
    mock.timers.tick(5000);
    await settled();
    assert.deepEqual([succession.check.ok, begins], [true, 1]);
  });
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import tls from 'node:tls';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import { listeningAt } from '@isthmus/runtime';
import {
  type Flags,
  freePort,
  hubMember,
  newTrust,
  nextChunk,
  type Program,
  peerFlags,
  Relay,
  type Scope,
  SLOW_TESTS,
  type Split,
  scoped,
  split,
  startAgent,
  startGateway,
  startServer,
  tempDir,
  times,
  until,
  within,
} from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { asked } from '../plane/operator.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';

/** An API server, as far as bytes pass: it says its name, and what it hears. */
async function apiServer(scope: Scope, name = 'api') {
  const open = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket.on('error', () => {}).on('close', () => open.delete(socket)));
    socket.write(`${name} hears `);
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.defer(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, open };
}

/** A client on the agent's node. @returns its connection, once the API server has greeted it */
async function client(scope: Scope, port: number, name = 'api'): Promise<Socket> {
  const socket = net.connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  scope.defer(() => void socket.destroy());
  assert.equal((await nextChunk(socket, 'the API server')).toString(), `${name} hears `);
  return socket.on('error', () => {});
}

async function carries(socket: Socket, line: string): Promise<void> {
  socket.write(line);
  let heard = '';
  while (heard.length < line.length) heard += (await nextChunk(socket, `"${line}" back`)).toString();
  assert.equal(heard, line);
}

async function ends(socket: Socket, line: string): Promise<void> {
  socket.end(line);
  assert.equal(await within(text(socket), { what: 'the last bytes' }), line);
}

/** Says and hears something again and again. */
function talk(socket: Socket) {
  let turns = 0;
  let heard = '';
  const next = () => void socket.write(`${turns}\n`);
  socket.on('data', (chunk: Buffer) => {
    heard += chunk;
    if (heard !== `${turns}\n`) return;
    heard = '';
    turns++;
    setTimeout(next, 10);
  });
  socket.resume();
  next();
  return {
    /** Waits until it has gone on, byte for byte. */
    goesOn: (what: string) => {
      const from = turns;
      return until(() => turns > from + 20, {
        what: () => `20 turns ${what}, and not ${turns - from}, then ${JSON.stringify(heard)}`,
        hopeless: () => (socket.destroyed ? 'its connection was reset' : undefined),
      });
    },
  };
}

/** How many connections to API servers a process has made. */
async function made({ program }: Pick<Split['hubs'][number], 'program'>): Promise<number> {
  return (await program.metric('isthmus_api_server_connections')).get('{tenant="default"}') ?? 0;
}

/** Waits until an agent has links to so many hubs. */
async function reaches(agent: Program | undefined, hubs: number): Promise<void> {
  let page = '';
  const there = async () => {
    page = (await agent?.get('/readyz?verbose').catch(() => undefined))?.body ?? '';
    return page.includes(` ${hubs} hubs`);
  };
  await until(there, { what: () => `links to ${hubs} hubs: ${page}` });
}

function listening(port: number, more: Flags = {}): Flags {
  return { 'api-server-listen': `127.0.0.1:${port}`, 'log-format': 'json', ...more };
}

test(
  'clients on a node reach the API server of their tenant by its address, and operators see through which agent',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const [acme, globex] = [await apiServer(scope, 'acme'), await apiServer(scope, 'globex')];
    const directory = await TenantsDirectory.create(scope);
    const tenants = [
      await directory.add('acme', { apiServer: { addresses: [acme.address] } }),
      await directory.add('globex', { apiServer: { addresses: [globex.address] } }),
    ];
    const audit = `${await tempDir(scope)}/audit.jsonl`;
    const flags = { 'tenants-dir': directory.path, 'uds-name': undefined, 'audit-log': audit, 'server-id': 'hub-1' };
    const server = await startServer(scope, trust, flags);
    const ports: number[] = [];
    for (const tenant of tenants) {
      const port = await freePort();
      ports.push(port);
      const { cert, key } = await tenant.agent('edge-1');
      const own = { 'agent-cert': cert, 'agent-key': key };
      const agent = await startAgent(scope, trust, server.agentPort, listening(port, { ...own, 'agent-id': 'edge-1' }));
      await agent.waitReady();
    }
    const [one, other] = [
      await client(scope, ports[0] as number, 'acme'),
      await client(scope, ports[1] as number, 'globex'),
    ];
    const list = await asked<{ tunnels: Record<string, unknown>[] }>(server.program, 'tunnels');
    assert.deepEqual(list.tunnels.map(({ tenant, agent, caller }) => [tenant, agent, caller]).sort(), [
      ['acme', 'direct', 'acme/agent/edge-1'],
      ['globex', 'direct', 'globex/agent/edge-1'],
    ]);
    const open = await server.program.metric('isthmus_api_server_connections');
    assert.equal(open.get('{tenant="acme"}'), 1);
    await ends(one, 'hello');
    // What a credential opened ends with it.
    const [, denied] = tenants;
    assert.ok(denied);
    await carries(other, 'hello');
    await directory.write({ ...denied.file, apiServer: { addresses: [globex.address] }, deny: { agents: ['edge-1'] } });
    await until(() => other.destroyed && globex.open.size === 0, { what: 'the end of what a denied agent carried' });
    const records = () => readRecords(audit) as unknown as Record<string, unknown>[];
    const ofAcme = () => records().find(({ record, tenant }) => record === 'api-server' && tenant === 'acme');
    const record = await until(ofAcme, { what: 'its record' });
    assert.deepEqual(
      [record.agent, record.serverName, record.address, record.outcome, record.closed],
      ['acme/agent/edge-1', undefined, acme.address, 'established', { by: 'caller' }],
    );
  }),
);

for (const proxyProtocol of [false, true]) {
  test(
    `an address that leads back to an agent is found by the first client${proxyProtocol ? ', behind headers of the PROXY protocol' : ''}, which does not go round without end`,
    scoped(async (scope) => {
      const trust = await newTrust(scope);
      const audit = `${await tempDir(scope)}/audit.jsonl`;
      const port = await freePort();
      const server = await startServer(scope, trust, {
        ...{ 'api-server': `127.0.0.1:${port}`, 'api-server-proxy-protocol': proxyProtocol },
        ...{ 'audit-log': audit, 'log-format': 'json' },
      });
      const agent = await startAgent(scope, trust, server.agentPort, listening(port));
      await agent.waitReady();
      const socket = tls.connect({ host: '127.0.0.1', port, rejectUnauthorized: false });
      const [error] = await within(once(socket, 'error'), { what: 'a reset' });
      assert.equal((error as NodeJS.ErrnoException).code, 'ECONNRESET');
      const failure = '{tenant="default",error="destination_ip_prohibited"}';
      const found = async () => (await server.program.metric('isthmus_api_server_failures_total')).get(failure) === 1;
      await until(found, { what: 'the address that leads back' });
      const over = async () =>
        (await made(server)) === 0 && (await agent.get('/readyz?verbose')).body.includes(' 0 connections');
      await until(over, { what: 'the end of all connections' });
      assert.match(server.program.tail, /the connection came back: 127\.0\.0\.1:\d+ is the plane itself/);
      // On the first one's way, each made the next until the hello had come after them. Without an end, they are 10,000.
      const records = readRecords(audit) as unknown as Record<string, unknown>[];
      const connections = records.filter(({ record }) => record === 'api-server').length;
      assert.ok(connections < 2000, `${connections} connections`);
    }),
  );
}

test(
  'a connection outlives the link that carries it, and the way to its hub',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await apiServer(scope);
    const server = await startServer(scope, trust, { 'api-server': api.address });
    const relay = await new Relay([server.agentPort]).listen();
    scope.defer(() => relay[Symbol.asyncDispose]());
    const port = await freePort();
    const agent = await startAgent(scope, trust, relay.port, listening(port));
    await agent.waitReady();
    const socket = await client(scope, port);
    await carries(socket, 'before');
    relay.reset();
    await carries(socket, 'after a reset');
    relay.strand();
    await carries(socket, 'after a silence');
    assert.equal(api.open.size, 1, 'it is the same connection');
    await ends(socket, 'the end');
    assert.equal((await server.program.metric('isthmus_api_server_failures_total')).size, 0);
  }),
);

test(
  'an agent without a hub is not ready, and clients are served once there is one',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await apiServer(scope);
    const [port, agentPort] = [await freePort(), await freePort()];
    const agent = await startAgent(scope, trust, agentPort, listening(port));
    const answers = async () => (await agent.get('/readyz?verbose').catch(() => undefined))?.body ?? '';
    const unready = async () => /\[-\]api-server.*no hub can be reached/.test(await answers());
    let page = '';
    await until(
      async () => {
        page = await answers();
        return unready();
      },
      { what: () => `a page that says so, and not ${page}` },
    );
    await startServer(scope, trust, { 'api-server': api.address, 'agent-port': agentPort });
    await agent.waitReady();
    await ends(await client(scope, port), 'hello');
  }),
);

test(
  'without a gateway that connects, a hub that drains lets connections end, and one that is killed takes its own along',
  { skip: redisMissing(), timeout: 120_000 },
  scoped(async (scope) => {
    const api = await apiServer(scope);
    const port = await freePort();
    const plane = await split(scope, {
      gateways: 1,
      hubFlags: { 'api-server': api.address, 'graceful-shutdown-timeout': '1h' },
      agentFlags: listening(port, { 'session-count': 2 }),
    });
    const [agent] = plane.agents;
    assert.ok(agent);
    const both = async () => /2 hubs/.test((await agent.get('/readyz?verbose')).body);
    await until(both, { what: 'links to both hubs' });
    const open = await Promise.all([client(scope, port), client(scope, port)]);
    const count = async (hub: number) =>
      (await plane.hubs[hub]?.program.metric('isthmus_api_server_connections'))?.get('{tenant="default"}') ?? 0;
    assert.deepEqual([await count(0), await count(1)], [1, 1], 'the hub with the fewest takes the next one');

    plane.hubs[0]?.program.signal('SIGTERM');
    const one = async () => /1 hubs/.test((await agent.get('/readyz?verbose')).body);
    await until(one, { what: 'the goodbye of the one that drains' });
    const next = await Promise.all([client(scope, port), client(scope, port)]);
    for (const socket of open) await carries(socket, 'still there');
    assert.deepEqual([await count(0), await count(1)], [1, 3]);

    plane.hubs[1]?.program.signal('SIGKILL');
    const left = () => [...open, ...next].filter((socket) => !socket.destroyed);
    await until(() => left().length === 1, {
      what: () => `the end of what the killed hub had: ${left().length} are left`,
    });
    for (const socket of left()) await ends(socket, 'to the end');
    await within(plane.hubs[0]?.program.exit as Promise<unknown>, { what: 'the exit of the hub that drains' });
  }),
);

test(
  'a connection goes on while hubs are killed, frozen and drained: a gateway has made it',
  { skip: redisMissing(), timeout: 180_000 },
  scoped(async (scope) => {
    const api = await apiServer(scope);
    const port = await freePort();
    const { hubs, gateways, agents } = await split(scope, {
      ...{ gateways: 1, hubs: 4 },
      gatewayFlags: { 'api-server': api.address },
      hubFlags: { 'api-server': api.address, 'graceful-shutdown-timeout': '1h' },
      agentFlags: listening(port, { 'session-count': 4 }),
    });
    const [gateway] = gateways;
    assert.ok(gateway);
    await reaches(agents[0], 4);
    // The hub with the fewest takes the next one.
    const served = async () => {
      const sockets = await Promise.all(hubs.map(() => client(scope, port)));
      const count = await made(gateway);
      for (const socket of sockets) socket.destroy();
      return count === hubs.length;
    };
    await until(served, { what: 'links of the gateway to all hubs' });
    await until(() => api.open.size === 0, { what: 'the end of these' });
    const talks: ReturnType<typeof talk>[] = [];
    for (let each = 0; each < 8; each++) talks.push(talk(await client(scope, port)));
    const goOn = (what: string) => Promise.all(talks.map((each) => each.goesOn(what)));
    await goOn('at first');
    assert.equal(await made(gateway), 8);
    assert.deepEqual(await Promise.all(hubs.map(made)), [0, 0, 0, 0]);

    hubs[0]?.program.signal('SIGKILL');
    await goOn('after a hub was killed');
    hubs[1]?.program.signal('SIGSTOP');
    await goOn('after another fell silent');
    hubs[1]?.program.signal('SIGKILL');
    hubs[2]?.program.signal('SIGTERM');
    await within(hubs[2]?.program.exit as Promise<unknown>, { what: 'the exit of a hub that drains' });
    await goOn('after another was drained');
    assert.equal(api.open.size, 8, 'they are the same connections');
    assert.equal(await made(gateway), 8);
  }),
);

test(
  'no connection ends while hubs are killed, frozen and rolled again and again',
  { skip: redisMissing() || (!SLOW_TESTS && 'set ISTHMUS_SLOW_TESTS=1'), timeout: 600_000 },
  scoped(async (scope) => {
    const api = await apiServer(scope);
    const [trust, redis, port] = [await newTrust(scope), await startRedis(), await freePort()];
    scope.defer(() => redis.stop());
    const plane = { 'redis-url': redis.url, plane: 'test', 'api-server': api.address };
    const hubs = await times(3, (index) => hubMember(scope, trust, `hub-${index}`, { flags: plane }));
    const gateway = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust, ['gateway'])) });
    const agent = await startAgent(
      ...([scope, trust, hubs[0]?.agentPort ?? 0] as const),
      listening(port, { 'session-count': 3 }),
    );
    await reaches(agent, 3);
    const atGateway = async () => {
      const sockets = await Promise.all(hubs.map(() => client(scope, port)));
      const count = await made(gateway);
      for (const socket of sockets) socket.destroy();
      return count === hubs.length;
    };
    await until(atGateway, { what: 'links of the gateway to all hubs' });
    await until(() => api.open.size === 0, { what: 'the end of these' });
    const talks = await times(6, async () => talk(await client(scope, port)));
    for (let turn = 0; turn < 9; turn++) {
      const { member } = hubs[turn % 3] as (typeof hubs)[number];
      const how = ['SIGKILL', 'SIGSTOP', 'SIGTERM'][Math.floor(turn / 3)] as NodeJS.Signals;
      member.program.signal(how);
      await Promise.all(talks.map((each) => each.goesOn(`after ${how} to hub ${turn % 3}`)));
      if (how === 'SIGSTOP') await member.kill();
      await member.program.exit;
      await member.restart();
      await reaches(agent, 3);
      await Promise.all(talks.map((each) => each.goesOn('once it was back')));
    }
    assert.equal(api.open.size, 6, 'they are the same connections');
    assert.equal(await made(gateway), 6);
  }),
);

test(
  'a gateway that drains keeps what it has made, also through another hub, and one that is killed takes it along',
  { skip: redisMissing() || (!SLOW_TESTS && 'set ISTHMUS_SLOW_TESTS=1'), timeout: 180_000 },
  scoped(async (scope) => {
    const api = await apiServer(scope);
    const port = await freePort();
    const { hubs, gateways, agents } = await split(scope, {
      gatewayFlags: { 'api-server': api.address, 'graceful-shutdown-timeout': '1h' },
      agentFlags: listening(port, { 'session-count': 2 }),
    });
    await reaches(agents[0], 2);
    const [one, other] = gateways;
    assert.ok(one && other);
    // Hubs have no API server of their own: until each has both gateways, some connections are reset.
    const both = async () => {
      const sockets = await Promise.all([1, 2, 3, 4].map(() => client(scope, port).catch(() => undefined)));
      const open = await Promise.all(gateways.map(made));
      for (const socket of sockets) socket?.destroy();
      return open.every((count) => count >= 2);
    };
    await until(both, { what: 'links of both gateways to both hubs' });
    await until(() => api.open.size === 0, { what: 'the end of these' });
    const sockets = await Promise.all([1, 2, 3, 4].map(() => client(scope, port)));
    const talks = sockets.map(talk);
    one.program.signal('SIGTERM');
    await one.program.waitForLog(({ msg }) => msg === 'stopping', { what: 'the drain' });
    const kept = await made(one);
    assert.ok(kept > 0 && kept < 4, `${kept} of 4`);
    await until(
      async () => {
        await ends(await client(scope, port), 'next');
        return (await made(one)) === kept;
      },
      { what: 'new ones to go through the other gateway' },
    );
    hubs[0]?.program.signal('SIGKILL');
    await Promise.all(talks.map((each) => each.goesOn('after a hub was killed')));
    other.program.signal('SIGKILL');
    const left = () => sockets.filter((socket) => !socket.destroyed);
    await until(() => left().length === kept, { what: () => `${kept} to be left of ${left().length}` });
    for (const [index, socket] of sockets.entries()) if (!socket.destroyed) await talks[index]?.goesOn('to the end');
    for (const socket of left()) socket.destroy();
    await within(one.program.exit, { what: 'the exit of the gateway that drains' });
  }),
);

test(
  'while one agent takes the place of another at the same address, new connections go to the new one',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await apiServer(scope);
    const server = await startServer(scope, trust, { 'api-server': api.address });
    const port = await freePort();
    const start = async (id: string) => {
      const agent = await startAgent(scope, trust, server.agentPort, listening(port, { 'agent-id': id }));
      await agent.waitReady();
      return agent;
    };
    const before = await start('before');
    const old = await client(scope, port);
    before.signal('SIGTERM');
    // It is the only door, so it stays.
    await before.waitForLog(({ msg }) => msg === 'stopping', { what: 'the drain' });
    await ends(await client(scope, port), 'through the only one');
    const after = await start('after');
    const left = async () => /another process listens now/.test((await before.get('/readyz?verbose')).body);
    await until(left, { what: 'the old one to leave the address' });
    await ends(await client(scope, port), 'through the new one');
    await carries(old, 'still there');
    await ends(old, 'the end');
    await within(before.exit, { what: 'the exit of the old one' });
    await ends(await client(scope, port), 'through the new one');
    assert.ok(after.running);
  }),
);

/** Connects again and again, each time for a word. @returns what ends it, and says how it went */
function knock(scope: Scope, port: number) {
  let stopped = false;
  let served = 0;
  const failed: string[] = [];
  const once = async () => {
    try {
      await ends(await client(scope, port), 'a word');
      served++;
    } catch (error) {
      failed.push((error as NodeJS.ErrnoException).code ?? (error as Error).message);
    }
  };
  const all = async () => {
    while (!stopped) await once();
  };
  const knocking = all();
  return {
    get served() {
      return served;
    },
    async stop() {
      stopped = true;
      await knocking;
      return failed;
    },
  };
}

test(
  'agents that overlap at one address and one health port refuse nobody, and one that comes after the other does for a while',
  { timeout: 120_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await apiServer(scope);
    const server = await startServer(scope, trust, { 'api-server': api.address });
    const [port, health] = [await freePort(), await freePort()];
    // As the pods of a DaemonSet, whose network is the node's.
    const flags = listening(port, { 'agent-id': 'node', 'health-server-port': health });
    const start = () => startAgent(scope, trust, server.agentPort, flags);
    const alive = async () =>
      (await fetch(`http://127.0.0.1:${health}/healthz`).catch(() => undefined))?.status === 200;
    let agent = await start();
    await until(alive, { what: 'the first agent' });
    const knocking = knock(scope, port);
    for (let roll = 0; roll < 3; roll++) {
      const next = await start();
      await until(() => listeningAt({ host: '127.0.0.1', port: health }) === 2, { what: 'both at the health port' });
      agent.signal('SIGTERM');
      await within(agent.exit, { what: 'the exit of the old one' });
      // A connection that fetch kept may be the old one's.
      await until(alive, { what: 'the new one at the health port' });
      const before = knocking.served;
      await until(() => knocking.served > before, { what: 'a client at the new one' });
      agent = next;
    }
    assert.deepEqual(await knocking.stop(), []);

    await agent.kill();
    const refused = knock(scope, port);
    await start();
    await until(() => refused.served > 0, { what: 'a client at the one that came after' });
    assert.deepEqual(new Set(await refused.stop()), new Set(['ECONNREFUSED']));
  }),
);

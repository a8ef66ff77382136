import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import tls from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { SharedBudget } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import { LinkClient, SocketEnd, upgradeServer } from '@isthmus/transport';
import { type DialRequest, planeEvents } from '@isthmus/tunnel';
import { Agent, type AgentOptions } from './agent.ts';

const BASIC = {
  agentId: 'a1',
  identifiers: '',
  tenant: 'default',
  zone: '',
  version: '1',
  alpn: [],
  token: () => undefined,
  sessionCount: 1,
  serverCountSource: 'default',
  syncInterval: 1000,
  syncIntervalCap: 1000,
  syncForever: false,
  rebalanceTime: 0,
  keepaliveTime: 60_000,
  observation: { events: planeEvents() },
} as const;

const toAgent = (socket: net.Socket) => ({ socket, peer: 'agent a1', events: planeEvents() });

/** An agent of a hub that is played by the test. */
async function agentOf(
  context: TestContext,
  hub: Parameters<typeof upgradeServer>[0],
  options: Partial<AgentOptions> = {},
  hosts: readonly string[] = ['127.0.0.1'],
): Promise<Agent> {
  const upgrades = upgradeServer(hub);
  const server = net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const running = new Agent({
    ...BASIC,
    server: { hosts, port: (server.address() as AddressInfo).port },
    ...options,
  });
  context.after(() => running.close());
  return running;
}

test('a connection that comes up while the agent drains says so', { timeout: 60_000 }, async (context) => {
  const asked = Promise.withResolvers<void>();
  const drained = Promise.withResolvers<void>();
  const told = Promise.withResolvers<string>();
  const running = await agentOf(context, {
    async admit() {
      asked.resolve();
      await drained.promise;
      return { hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: 1 };
    },
    open: (socket) => void new LinkClient({ ...toAgent(socket), receive: ({ type }) => told.resolve(type) }),
    refused: (_socket, error) => told.reject(error),
    fault: (_socket, error) => told.reject(error),
  });
  await asked.promise;
  const draining = running.drain();
  drained.resolve();
  assert.equal(await told.promise, 'drain');
  await draining;
});

test('a tunnel of an agent that drains goes on when its hub is there again', { timeout: 60_000 }, async (context) => {
  const echo = net.createServer((socket) => void socket.on('error', () => {}).pipe(socket)).listen(0, '127.0.0.1');
  await once(echo, 'listening');
  context.after(() => echo.close());
  const links: LinkClient[] = [];
  const told: string[] = [];
  const running = await agentOf(
    context,
    {
      admit: async () => ({ hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: 1 }),
      open: (socket) =>
        void links.push(new LinkClient({ ...toAgent(socket), to: 'agent', receive: ({ type }) => told.push(type) })),
      refused() {},
      fault() {},
    },
    { resume: { timeoutMs: 30_000, budget: new SharedBudget(0) } },
  );
  await until(() => links.length === 1, 'a link');
  const request = {
    id: '00000000000000aa',
    destination: { host: '127.0.0.1', port: (echo.address() as AddressInfo).port },
    deadline: performance.now() + 60_000,
    signal: new AbortController().signal,
    tenant: 'default',
  };
  const { resumption } = await (links[0] as LinkClient).dial({ ...request, resumeOffer: { halfAtPeer: true } });
  assert.ok(resumption);
  const draining = running.drain();
  await until(() => told.length === 1, 'that it drains');
  (links[0] as LinkClient).destroy(new Error('the hub is killed'));
  await until(() => told.length === 2, 'that it drains, on another link');
  assert.deepEqual(told, ['drain', 'drain']);
  const claim = { number: 1, received: 0, taken: 0, secret: resumption.ticket.secret };
  const { end } = await (links[1] as LinkClient).attach({ ...request, session: 's1', halfAtPeer: true, claim });
  end.abort(new Error('enough'));
  await draining;
});

for (const [source, leased, told, names, wanted] of [
  ['default', 1, 3, 1, 1],
  ['default', undefined, 3, 1, 3],
  ['default', 1, 1, 3, 3],
  ['default', 5, 1, 3, 5],
  ['max', 1, 3, 1, 3],
  ['max', 3, 1, 1, 3],
  ['max', undefined, 3, 1, 3],
  ['max', 1, 1, 3, 3],
] as const) {
  const leases = leased === undefined ? 'no Leases counted' : `${leased} by Leases`;
  const name = `by source ${source}, with ${leases} and ${told} by its server, an agent of ${names} wants ${wanted}`;
  test(name, { timeout: 60_000 }, async (context) => {
    const events = planeEvents();
    const connected = once(events, 'server:open');
    const running = await agentOf(
      context,
      {
        admit: async () => ({ hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: told }),
        open: (socket) => void new LinkClient(toAgent(socket)),
        refused() {},
        fault() {},
      },
      {
        serverCountSource: source,
        observation: { events },
        ...(leased !== undefined && { leases: () => leased }),
      },
      // Only the first answers.
      ['127.0.0.1', '127.0.0.2', '127.0.0.3'].slice(0, names),
    );
    await connected;
    assert.equal(running.wanted, wanted);
  });
}

test("an agent dials for its link's tenant only, and by that tenant's rules", { timeout: 60_000 }, async (context) => {
  const opened = Promise.withResolvers<LinkClient>();
  const heard: (string | undefined)[] = [];
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (where, _peer, { message }) => refused.push(`${where}: ${message}`));
  await agentOf(
    context,
    {
      async admit({ tenant }) {
        heard.push(tenant);
        return { hubId: 'h1', sessionId: 's1', tenant: 'acme', policy: true, plane: '', serverCount: 1 };
      },
      open: (socket) => opened.resolve(new LinkClient(toAgent(socket))),
      refused: (_socket, error) => opened.reject(error),
      fault: (_socket, error) => opened.reject(error),
    },
    { tenant: '', observation: { events } },
  );
  const link = await opened.promise;
  assert.deepEqual(heard, [undefined]);
  const destination = net.createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
  await once(destination, 'listening');
  context.after(() => destination.close());
  const { port } = destination.address() as AddressInfo;
  const dial = async (tenant: string, callerName: string) => {
    const { signal } = new AbortController();
    const at = {
      id: '00000000000000aa',
      destination: { host: 'localhost', port },
      deadline: performance.now() + 60_000,
    };
    const request: DialRequest = { ...at, signal, tenant, callerName };
    try {
      (await link.dial(request)).end.abort(new Error('enough'));
      return 'dialled';
    } catch (error) {
      return (error as Error).message;
    }
  };
  // It overtakes the rules, and waits for them.
  const early = dial('acme', 'operator');
  const callers = ['operator'];
  link.send({ type: 'policy', deny: [{ name: 'no-loopback', cidr: '127.0.0.0/8', callers }, { cidr: '::1' }] });
  const other = 'hub h1 dials for tenant default, and this link is of tenant acme';
  assert.match(await early, /the policy of tenant acme refuses (127\.0\.0\.1|::1) \(rule (no-loopback|deny\[1\])\)$/);
  assert.equal(await dial('acme', 'kube-apiserver'), 'dialled');
  assert.equal(await dial('default', 'kube-apiserver'), other);
  link.send({
    type: 'policy',
    deny: [
      { name: 'no-loopback', cidr: '127.0.0.0/8' },
      { name: 'no-loopback', cidr: '::1' },
    ],
  });
  assert.match(await dial('acme', 'kube-apiserver'), /\(rule no-loopback\)$/);
  link.send({ type: 'policy', deny: [{ cidr: '10.0.0.0/99' }] });
  assert.match(await dial('acme', 'kube-apiserver'), /\(rule no-loopback\)$/, 'rules that cannot be used change none');
  link.send({ type: 'policy' });
  assert.equal(await dial('acme', 'operator'), 'dialled');
  assert.deepEqual(
    refused.map((line) => line.split(':')[0]),
    ['destination', 'agent link', 'destination', 'agent link', 'destination'],
  );
});

test('a TLS server whose certificate is refused costs ever fewer handshakes', { timeout: 60_000 }, async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-agent-'));
  context.after(() => rm(dir, { recursive: true }));
  const [trusted, other] = [await Authority.create(dir, 'trusted'), await Authority.create(dir, 'other')];
  const identity = await other.server({ hosts: [{ type: 'ip', value: '127.0.0.1' }] });
  const handshakes: number[] = [];
  const server = tls.createServer({ cert: await readFile(identity.cert), key: await readFile(identity.key) });
  server.on('connection', () => handshakes.push(performance.now())).on('tlsClientError', () => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const running = new Agent({
    ...BASIC,
    syncIntervalCap: 10_000,
    server: { hosts: ['127.0.0.1'], port: (server.address() as AddressInfo).port },
    tls: { ca: trusted.cert },
  });
  context.after(() => running.close());
  while (handshakes.length < 4) await new Promise((resolve) => setTimeout(resolve, 20));
  const pauses = handshakes.slice(1).map((at, index) => at - (handshakes[index] as number));
  // Timers may be late, not early.
  [25, 50, 100].forEach((least, index) => {
    assert.ok((pauses[index] as number) >= least - 5, `${pauses}`);
  });
});

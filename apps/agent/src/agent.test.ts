import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { LinkClient, upgradeServer } from '@isthmus/transport';
import { noTracer, planeEvents } from '@isthmus/tunnel';
import { type Agent, type AgentOptions, agent } from './agent.ts';

/** An agent of a hub that is played by the test. */
async function agentOf(
  context: TestContext,
  hub: Parameters<typeof upgradeServer>[0],
  options: Partial<AgentOptions> = {},
): Promise<Agent> {
  const upgrades = upgradeServer(hub);
  const server = net.createServer((socket) => upgrades.accept(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const running = agent({
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
    server: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    rebalanceTime: 0,
    keepaliveTime: 60_000,
    observation: { events: planeEvents(), tracer: noTracer },
    ...options,
  });
  context.after(() => running.close());
  return running;
}

test('a connection that comes up while the agent drains is let go', { timeout: 60_000 }, async (context) => {
  const asked = deferred<void>();
  const drained = deferred<void>();
  const opened = deferred<LinkClient>();
  const running = await agentOf(context, {
    async admit() {
      asked.resolve();
      await drained.promise;
      return { hubId: 'h1', sessionId: 's1', plane: '', serverCount: 1 };
    },
    open: (socket) => opened.resolve(new LinkClient({ socket, peer: 'agent a1' })),
    refused: (_socket, error) => opened.reject(error),
    fault: (_socket, error) => opened.reject(error),
  });
  await asked.promise;
  const draining = running.drain();
  drained.resolve();
  await (await opened.promise).closed;
  assert.equal(running.uplinks.length, 0);
  await draining;
});

for (const [source, leased, told, wanted] of [
  ['default', 1, 3, 1],
  ['default', undefined, 3, 3],
  ['max', 1, 3, 3],
  ['max', 3, 1, 3],
  ['max', undefined, 3, 3],
] as const) {
  const leases = leased === undefined ? 'no Leases counted' : `${leased} by Leases`;
  const name = `by source ${source}, with ${leases} and ${told} by its server, the agent wants ${wanted}`;
  test(name, { timeout: 60_000 }, async (context) => {
    const events = planeEvents();
    const connected = once(events, 'server:open');
    const running = await agentOf(
      context,
      {
        admit: async () => ({ hubId: 'h1', sessionId: 's1', plane: '', serverCount: told }),
        open: (socket) => void new LinkClient({ socket, peer: 'agent a1' }),
        refused() {},
        fault() {},
      },
      {
        serverCountSource: source,
        observation: { events, tracer: noTracer },
        ...(leased !== undefined && { leases: () => leased }),
      },
    );
    await connected;
    assert.equal(running.wanted, wanted);
  });
}

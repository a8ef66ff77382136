import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { LinkClient, upgradeServer } from '@isthmus/transport';
import { noTracer, planeEvents } from '@isthmus/tunnel';
import { agent } from './agent.ts';

test('a connection that comes up while the agent drains is let go', { timeout: 60_000 }, async (context) => {
  const asked = deferred<void>();
  const drained = deferred<void>();
  const opened = deferred<LinkClient>();
  const upgrades = upgradeServer({
    async admit() {
      asked.resolve();
      await drained.promise;
      return { hubId: 'h1', sessionId: 's1', plane: '', serverCount: 1 };
    },
    open: (socket) => opened.resolve(new LinkClient({ socket, peer: 'agent a1' })),
    refused: (_socket, error) => opened.reject(error),
  });
  const server = net.createServer((socket) => upgrades.accept(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const running = agent({
    ...{ agentId: 'a1', identifiers: '', tenant: 'default', zone: '', version: '1', alpn: [], token: () => undefined },
    ...{ sessionCount: 1, serverCountSource: 'default', syncInterval: 1000, syncIntervalCap: 1000, syncForever: false },
    server: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    rebalanceTime: 0,
    keepaliveTime: 60_000,
    observation: { events: planeEvents(), tracer: noTracer },
  });
  context.after(() => running.close());
  await asked.promise;
  const draining = running.drain();
  drained.resolve();
  await (await opened.promise).closed;
  assert.equal(running.uplinks.length, 0);
  await draining;
});

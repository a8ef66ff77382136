import assert from 'node:assert/strict';
import net, { type AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { ApiServerLinks, ApiServers, SocketEnd, upgradeServer } from '@isthmus/transport';
import { DialAbort, planeEvents } from '@isthmus/tunnel';
import { HubLinks } from './hub-links.ts';
import { AgentToken } from './token.ts';
import type { Uplink } from './uplink.ts';

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

async function listen(server: net.Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** A hub that reaches the API server there. @returns its port */
function hub(hubId: string, apiServer: number): Promise<number> {
  const events = planeEvents();
  const server = { tenant: 'acme', addresses: [`127.0.0.1:${apiServer}`], proxyProtocol: false };
  const apiServers = new ApiServers({
    ...{ hubId, any: () => true, find: () => undefined, ofTenant: () => server, prohibited: () => undefined, events },
  });
  const links = new ApiServerLinks({ hubId, apiServers, events });
  const caller = { via: 'api-server', identity: 'acme/agent/a1' } as const;
  const upgrades = upgradeServer({
    admit: async () => ({ hubId, sessionId: '', tenant: 'acme', plane: '', serverCount: 1 }),
    open: (socket) => void links.open(socket, { tenant: 'acme', agentId: 'a1', caller, receive() {} }),
    refused() {},
    fault: (_socket, error) => assert.fail(error),
  });
  cleanups.push(() => {
    apiServers.close();
    links.close();
  });
  return listen(
    net.createServer({ allowHalfOpen: true }, (socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))),
  );
}

test('clients of an agent get through another hub what one hub cannot reach', async () => {
  const apiServer = await listen(net.createServer((socket) => socket.on('error', () => {}).resume()));
  const nobody = net.createServer();
  const closed = await listen(nobody);
  nobody.close();
  const hello = { agentId: 'a1', identifiers: '', version: '1' };
  const links = new HubLinks({
    ...{
      serverNames: [],
      alpn: [],
      token: new AgentToken(() => undefined),
      hello,
      instance: '0123456789abcdef',
      events: planeEvents(),
    },
  });
  cleanups.push(() => links.destroy(new Error('test over')));
  for (const [serverId, port] of [
    ['broken', await hub('broken', closed)],
    ['sound', await hub('sound', apiServer)],
  ] as const) {
    const server = { address: '127.0.0.1', port };
    links.follow({
      protocol: 'link',
      server,
      serverId,
      leaving: false,
      closed: new Promise(() => {}),
    } as never as Uplink);
  }
  await until(() => links.up === 2, { what: 'both links' });
  const through: string[] = [];
  for (let id = 1; id <= 5; id++) {
    const client = { id: `000000000000000${id}`, deadline: performance.now() + 5000, signal: new DialAbort() };
    const [, { hubId }] = await links.dial(client, () => {});
    through.push(hubId);
  }
  assert.deepEqual(through, Array(5).fill('sound'));
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { createChannel, createClient } from 'nice-grpc';
import type { Recent } from './calls/recent.ts';
import type { AdminServer } from './server.ts';
import { aPort, idleBackend } from './testing/backend.ts';
import { grpcClient } from './testing/client.ts';

const backend = idleBackend();

const serve = () => aPort({ backend });

function at({ address }: AdminServer): string {
  return `127.0.0.1:${address.port}`;
}

describe("the admin RPC's server", () => {
  it('serves clients that connect while it loads, each on a connection of its own', async () => {
    await using server = await serve();
    const clients = Array.from({ length: 20 }, () => createChannel(at(server), undefined, OWN_CONNECTION));
    await Promise.all(clients.map((channel) => createClient(adminApi.AdminDefinition, channel).listSessions({})));
    for (const channel of clients) channel.close();
  });

  it('cancels calls that still run when the port closes', { timeout: 60_000 }, async () => {
    const server = await serve();
    using client = grpcClient(at(server));
    const dials = client.admin.watchDials({})[Symbol.asyncIterator]();
    // The call may end before close() has returned, so its end is awaited from the start.
    const cancelled = assert.rejects(dials.next());
    // The watch has begun when a later call on the same connection has its answer.
    await client.admin.listTunnels({});
    assert.equal((backend.recent as Recent).watchers, 1);
    await server.close();
    await cancelled;
    assert.equal((backend.recent as Recent).watchers, 0);
  });
});

/** By default, clients of one process share connections. */
const OWN_CONNECTION = { 'grpc.use_local_subchannel_pool': 1 };

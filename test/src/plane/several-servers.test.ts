import assert from 'node:assert/strict';
import test from 'node:test';
import { echo, freePort, HUB_NAMED, newTrust, scoped, startAgent, startServer, until } from '../harness/index.ts';
import { carries, dial } from './dials.ts';

test(
  'one agent serves several servers that know nothing of each other, each by its own address, and outlives one of them',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { cert, key } = await trust.agents.server(HUB_NAMED);
    const port = await freePort();
    const hosts = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
    const [first, ...others] = await Promise.all(
      hosts.map((host) =>
        startServer(scope, trust, {
          'agent-bind-address': host,
          'agent-port': port,
          'cluster-cert': cert,
          'cluster-key': key,
        }),
      ),
    );
    const agent = await startAgent(scope, trust, port, { 'proxy-server-host': hosts.join(',') });
    const connected = (count: number) => async () =>
      (await agent.get('/readyz?verbose')).body.includes(`connected to ${count} of 3`);
    await until(connected(3), { what: 'a session at each server' });
    const { authority } = await echo(scope);
    for (const server of others) await carries(await dial(scope, server, 'grpc', authority));
    await first?.program.kill();
    await until(connected(2), { what: 'the end of one session' });
    for (const server of others) await carries(await dial(scope, server, 'connect', authority));
    assert.ok(agent.running);
  }),
);

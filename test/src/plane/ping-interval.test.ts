import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import test from 'node:test';
import { newTrust, relayTo, scoped, startAgent, startServer } from '../harness/index.ts';

test(
  'both sides of a link wait as long as its agent wants, before they hold the other for dead',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const relay = await relayTo(scope, server.agentPort);
    const agent = await startAgent(scope, trust, relay.port, { 'ping-interval': '2s' });
    await agent.waitReady();
    relay.pause();
    // 3 s more on a side whose first PING has no answer yet. A busy machine notices later.
    const silent = /silent for (4\.[5-9]|[5-9])\d*(\.\d+)? s, even to PING/;
    await Promise.all([agent, server.program].map((program) => program.waitForLine(silent)));
  }),
);

/** What a hub of many agents answers. */
const ANSWER = [
  'HTTP/1.1 101 Switching Protocols',
  'connection: upgrade',
  'upgrade: isthmus-link/1',
  'isthmus-hub: hub',
  'isthmus-session: session',
  'isthmus-ping: 2',
];

test(
  'an agent without an interval of its own waits at rest as long as its hub wants',
  scoped(async (scope) => {
    const hub = createServer((socket) => {
      socket.on('error', () => {}).once('data', () => socket.write(`${ANSWER.join('\r\n')}\r\n\r\n`));
      scope.defer(() => socket.destroy());
    }).listen(0, '127.0.0.1');
    scope.defer(() => hub.close());
    await once(hub, 'listening');
    const { port } = hub.address() as AddressInfo;
    const plain = { 'ca-cert': undefined, 'agent-cert': undefined, 'agent-key': undefined };
    const agent = await startAgent(scope, await newTrust(scope), port, plain);
    await agent.waitForLine(/silent for 9 s, even to PING/);
  }),
);

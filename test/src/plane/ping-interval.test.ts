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
    await Promise.all([agent, server.program].map((program) => program.waitForLine(/silent for 4\.5 s, even to PING/)));
  }),
);

import assert from 'node:assert/strict';
import test from 'node:test';
import { newTrust, relayTo, scoped, startAgent, startServer, tunnelThrough } from '../harness/index.ts';

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

test(
  'a dial finds a dead link as soon as ever, however rare the PINGs that its agent wants',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const relay = await relayTo(scope, server.agentPort);
    const agent = await startAgent(scope, trust, relay.port, { 'ping-interval': '5m' });
    await agent.waitReady();
    relay.pause();
    await assert.rejects(
      tunnelThrough(scope, { via: server.connect, destination: '127.0.0.1:1' }),
      /silent for .* even to PING/,
    );
  }),
);

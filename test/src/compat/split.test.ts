import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { eventually, goMissing, peerDial, scoped, split, web } from '../harness/index.ts';
import { startAgentOf, writeEgressConfigs } from './rig.ts';

test(
  'every gateway of a split plane reaches a Go agent at one hub, on all three transports of an API server',
  { skip: goMissing() || redisMissing() },
  scoped(async (scope) => {
    const { trust, gateways, hubs, agents } = await split(scope, { gateways: 2, hubs: 2, agents: 1 });
    const goAgent = await startAgentOf(scope, 'Go', trust, hubs[0]?.agentPort ?? 0, { 'agent-id': 'go' });
    await goAgent.waitReady();
    for (const agent of agents) await agent.kill();
    const site = await web(scope, 'through two hops');
    for (const gateway of gateways) {
      for (const [transport, config] of await writeEgressConfigs(trust, gateway)) {
        await eventually(async () => {
          const { results } = await peerDial(scope, { via: { config }, dest: site.authority });
          assert.deepEqual([results[0]?.error, results[0]?.text], ['', 'through two hops'], transport);
        });
      }
    }
  }),
);

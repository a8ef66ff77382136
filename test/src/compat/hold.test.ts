import assert from 'node:assert/strict';
import test from 'node:test';
import { echo, eventually, goMissing, holdMember, newTrust, scoped, serverMember } from '../harness/index.ts';
import { carries, closed, dial, PROTOCOLS } from '../plane/dials.ts';
import { startAgentOf } from './rig.ts';

test(
  'under isthmus hold, tunnels of a Go agent end with their gateway, which the witness names, and the next dials wait for it',
  { skip: goMissing(), timeout: 120_000 },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const { member: server, ways, agentPort } = await serverMember(scope, trust, 'server-0');
    await startAgentOf(scope, 'Go', trust, agentPort);
    await server.program.waitReady();
    const { member: hold, ways: held } = await holdMember(scope, trust, [ways]);
    await hold.program.waitReady();
    const { authority } = await echo(scope);
    const tunnels = await Promise.all(PROTOCOLS.map((protocol) => dial(scope, held, protocol, authority)));
    for (const tunnel of tunnels) await carries(tunnel.on('error', () => {}));

    await server.kill();
    for (const tunnel of tunnels) await closed(tunnel);
    const next = dial(scope, held, 'connect', authority);
    await server.restart();
    await carries(await next);
    await eventually(() => {
      const ends = hold.program.logs.filter(({ msg }) => msg === 'tunnel closed');
      assert.deepEqual(
        ends.map(({ cut }) => cut),
        PROTOCOLS.map(() => 'gateway'),
      );
    });
  }),
);

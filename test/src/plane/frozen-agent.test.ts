import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, scoped, unlessSlow, until } from '../harness/index.ts';
import { carries, closed, dial, PROTOCOLS } from './dials.ts';
import { hubPlane, linesFromNow } from './hub-plane.ts';

/** How long a machine stands still while a snapshot of it is taken, in milliseconds. */
const FREEZES = [25_000, 60_000];

test(
  'an agent whose machine is frozen for a while keeps its tunnels',
  { skip: redisMissing() || unlessSlow(), timeout: 300_000 },
  scoped(async (scope) => {
    const { agent, gateway, ways } = await hubPlane(scope, { hubs: 2 });
    const said = linesFromNow(gateway);
    const destination = await echo(scope);
    const tunnels = await Promise.all(PROTOCOLS.map((protocol) => dial(scope, ways, protocol, destination.authority)));
    for (const freeze of FREEZES) {
      for (const tunnel of tunnels) await carries(tunnel, 'before');
      agent.program.signal('SIGSTOP');
      await sleep(freeze);
      agent.program.signal('SIGCONT');
      for (const tunnel of tunnels) await carries(tunnel, `after ${freeze} ms`);
    }
    assert.equal(destination.open, tunnels.length);
    assert.deepEqual(
      said('tunnel closed').filter(({ cut }) => cut),
      [],
    );
    for (const tunnel of tunnels) tunnel.destroy();
  }),
);

test(
  'callers of an agent that dies while it is frozen, and comes back as another process, do not wait',
  { skip: redisMissing(), timeout: 120_000 },
  scoped(async (scope) => {
    const { agent, gateway, ways } = await hubPlane(scope, { hubs: 2 });
    const destination = await echo(scope);
    const tunnel = await dial(scope, ways, 'connect', destination.authority);
    await carries(tunnel, 'before');
    const said = linesFromNow(gateway);
    agent.program.signal('SIGSTOP');
    await until(() => said('tunnel detached').length > 0, { what: 'the tunnel to be detached' });
    await agent.kill();
    await agent.restart();
    // Long before --resume-timeout.
    await closed(tunnel);
  }),
);

import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, type Member, scoped, unlessSlow, until } from '../harness/index.ts';
import { carries, closed, dial, PROTOCOLS } from './dials.ts';
import { hubPlane, linesFromNow, wholeAgain } from './hub-plane.ts';

/** How long a busy machine's process stands still, and what a freeze may take for the test to count it, in milliseconds. */
const STANDSTILL = { ms: 2500, most: 3200 };

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

for (const who of ['agent', 'hub'] as const)
  test(
    `${who === 'agent' ? 'an agent' : 'a hub'} that stands still for 2.5 s loses no session`,
    { skip: redisMissing(), timeout: 120_000 },
    scoped(async (scope) => {
      const plane = await hubPlane(scope, { hubs: 2 });
      const { agent, gateway, hubs, ways } = plane;
      const destination = await echo(scope);
      const tunnels = await Promise.all(
        PROTOCOLS.map((protocol) => dial(scope, ways, protocol, destination.authority)),
      );
      const { program } = who === 'agent' ? agent : (hubs[0] as Member);
      let said: ReturnType<typeof linesFromNow>[] = [];
      const lines = (message: string) => said.flatMap((of) => of(message));
      const freeze = async () => {
        said = [agent, gateway, ...hubs].map(linesFromNow);
        const since = performance.now();
        program.signal('SIGSTOP');
        await sleep(STANDSTILL.ms);
        program.signal('SIGCONT');
        return performance.now() - since;
      };
      // A freeze that took longer, because this process was late too, proves nothing.
      while ((await freeze()) > STANDSTILL.most) await wholeAgain(plane);
      for (const tunnel of tunnels) await carries(tunnel, 'after the standstill');
      assert.equal((await gateway.sessions()).length, 2);
      for (const lost of ['session closed', 'server connection closed', 'hub connection closed'])
        assert.deepEqual(lines(lost), [], lost);
      for (const tunnel of tunnels) tunnel.destroy();
    }),
  );

test(
  'a silent session is suspected first, its tunnels go on through another, and it is ended seconds later',
  { skip: redisMissing(), timeout: 120_000 },
  scoped(async (scope) => {
    const { gateway, hubs, ways, relays } = await hubPlane(scope, { hubs: 2, relayed: true });
    const destination = await echo(scope);
    const tunnel = await dial(scope, ways, 'connect', destination.authority);
    await carries(tunnel, 'before');
    const [{ hubId } = { hubId: '' }] = await gateway.tunnels();
    const index = hubId === 'hub-1' ? 0 : 1;
    const said = linesFromNow(hubs[index] as Member);
    relays[index]?.agent.pause();
    await carries(tunnel, 'through the other hub');
    await until(() => said('session closed').length > 0, { what: 'the end of the session' });
    const [silent, closed] = [said('session is silent')[0], said('session closed')[0]];
    const apart = Date.parse(String(closed?.time)) - Date.parse(String(silent?.time));
    assert.ok(apart >= 2000, `ended ${apart} ms after it was suspected`);
    tunnel.destroy();
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

import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { destination } from '../edges/rig.ts';
import { allInOne, echo, type Program, type Scope, scoped, startAgent, unlessSlow, until } from '../harness/index.ts';
import { carries, dial, PROTOCOLS } from './dials.ts';

const PING_EVERY_MS = 250;

/** Says something every so often while it lives. @returns resolves when it has heard that many more echoes */
function pinging(scope: Scope, tunnel: Duplex, everyMs = PING_EVERY_MS): (echoes: number) => Promise<unknown> {
  let heard = 0;
  const hear = (chunk: Buffer) => {
    heard += chunk.length / 'ping'.length;
  };
  tunnel.on('data', hear).resume();
  const timer = setInterval(() => tunnel.write('ping'), everyMs);
  const stop = () => clearInterval(timer);
  tunnel.once('close', stop);
  scope.defer(stop);
  return (echoes) => {
    const all = heard + echoes;
    return until(() => heard >= all, {
      what: `${echoes} echoes`,
      hopeless: () => (stateOf(tunnel) === 'open' ? undefined : 'it has ended'),
    });
  };
}

/** A caller that closes its connection when the other side does, as Go's HTTP client does with one that it keeps. */
function pooled(tunnel: Duplex): Duplex {
  return tunnel.once('end', () => tunnel.end()).resume();
}

/** How a tunnel is: open, ended by a FIN, or reset. */
function stateOf(tunnel: Duplex): 'open' | 'FIN' | 'reset' {
  if (tunnel.errored) return 'reset';
  return tunnel.readableEnded || tunnel.destroyed ? 'FIN' : 'open';
}

async function endedIdle(program: Program): Promise<number> {
  const counts = await program.metric('isthmus_idle_tunnels_ended_total');
  return [...counts.values()].reduce((sum, count) => sum + count, 0);
}

/** Sends a line a while after it was asked, and then nothing, as a log that is followed. */
function quietLog(scope: Scope) {
  return destination(scope, (socket) => {
    socket.once('data', () => {
      socket.write('head');
      const timer = setTimeout(() => socket.write('a line'), 2500);
      socket.once('close', () => clearTimeout(timer));
    });
    socket.once('end', () => socket.end());
  });
}

const IDLE = { 'drain-idle-timeout': '1s' };

for (const drains of ['agent', 'gateway'] as const)
  test(
    `a draining ${drains} ends pooled connections in order, and leaves what is in use`,
    scoped(async (scope) => {
      const serverFlags = { 'graceful-shutdown-timeout': '1h', ...IDLE };
      const { trust, server, agents } = await allInOne(scope, { serverFlags, agentFlags: IDLE });
      const [first] = agents as [Program];
      const [target, log] = [await echo(scope), await quietLog(scope)];
      const follows = await dial(scope, server, 'connect', log.authority);
      follows.write('GET');
      await until(() => follows.read() !== null || undefined, { what: 'the head of a log' });
      // Until it has written its line, it looks like an answer.
      await until(() => follows.read() !== null || undefined, { what: 'the line of the log' });
      const used = await Promise.all(PROTOCOLS.map((protocol) => dial(scope, server, protocol, target.authority)));
      const hears = used.map((tunnel) => pinging(scope, tunnel));
      const idle = await Promise.all(PROTOCOLS.map((protocol) => dial(scope, server, protocol, target.authority)));
      for (const tunnel of idle) {
        await carries(tunnel);
        pooled(tunnel);
      }
      // Where new dials go.
      const second = await startAgent(scope, trust, server.agentPort, { 'agent-id': 'agent-1' });
      await second.waitReady();
      const draining = drains === 'agent' ? first : server.program;
      draining.signal('SIGTERM');
      await until(() => idle.every(({ closed }) => closed), { what: 'the end of idle tunnels' });
      assert.deepEqual(idle.map(stateOf), ['FIN', 'FIN', 'FIN']);
      assert.equal(await endedIdle(draining), 3);
      // For longer than an idle tunnel may stay.
      await Promise.all(hears.map((echoes) => echoes(6)));
      assert.deepEqual([...used, follows].map(stateOf), ['open', 'open', 'open', 'open']);
      if (drains === 'agent') {
        const fresh = await dial(scope, server, 'connect', target.authority);
        await carries(fresh);
        const open = async () =>
          (await second.value('konnectivity_network_proxy_agent_open_endpoint_connections')) === 1;
        await until(open, { what: 'the dial at the second agent' });
        fresh.destroy();
      }
      assert.deepEqual([...target.failures, ...log.failures], []);
      for (const tunnel of [...used, follows]) tunnel.resume().end();
      const { code } = await draining.ended();
      assert.equal(code, 0);
      assert.deepEqual([...target.failures, ...log.failures], []);
    }),
  );

test(
  'an agent drains for as long as --drain-timeout says, and then cuts what is in use',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { agentFlags: { 'drain-timeout': '3s', ...IDLE } });
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const used = await dial(scope, server, 'connect', target.authority);
    const echoes = pinging(scope, used);
    used.on('error', () => {});
    agent.signal('SIGTERM');
    await echoes(4);
    assert.equal((await agent.ended()).code, 0);
    await until(() => used.closed, { what: 'the end of the tunnel' });
    assert.equal(stateOf(used), 'reset');
  }),
);

test(
  'an agent without --drain-timeout drains until its last tunnel has ended',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { agentFlags: { 'drain-idle-timeout': '0' } });
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const idle = await dial(scope, server, 'connect', target.authority);
    await carries(idle);
    agent.signal('SIGTERM');
    await until(async () => (await agent.get('/readyz')).status !== 200, { what: 'the agent to drain' });
    await carries(idle);
    assert.deepEqual([stateOf(idle), agent.running], ['open', true]);
    idle.resume().end();
    assert.equal((await agent.ended()).code, 0);
    assert.deepEqual(target.failures, []);
  }),
);

test(
  'by default, a ping every 30 s keeps a tunnel on a draining agent, and one that is silent ends',
  { skip: unlessSlow(), timeout: 180_000 },
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const [exec, http2, idle] = await Promise.all(
      [1, 2, 3].map(() => dial(scope, server, 'connect', target.authority)),
    );
    assert.ok(exec && http2 && idle);
    pinging(scope, exec, 5000);
    pinging(scope, http2, 30_000);
    await carries(idle);
    pooled(idle);
    agent.signal('SIGTERM');
    await until(() => idle.closed, { what: 'the end of the idle tunnel', deadline: 60_000 });
    assert.equal(stateOf(idle), 'FIN');
    await sleep(65_000);
    assert.deepEqual([exec, http2].map(stateOf), ['open', 'open']);
    for (const tunnel of [exec, http2]) tunnel.end();
    assert.equal((await agent.ended()).code, 0);
  }),
);

import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { destination, goesTo } from '../edges/rig.ts';
import { allInOne, echo, type Program, type Scope, scoped, startAgent, unlessSlow, until } from '../harness/index.ts';
import { carries, dial, PROTOCOLS } from './dials.ts';
import { isthmus } from './operator.ts';

/** Says something every so often while it lives. */
function pinging(scope: Scope, tunnel: Duplex, everyMs: number): void {
  const timer = setInterval(() => tunnel.resume().write('ping'), everyMs);
  const stop = () => clearInterval(timer);
  tunnel.once('close', stop);
  scope.defer(stop);
}

/** Collects what a tunnel carries to its caller. */
function heardOf(tunnel: Duplex): () => string {
  let heard = '';
  tunnel.on('data', (chunk: Buffer) => {
    heard += chunk;
  });
  tunnel.resume();
  return () => heard;
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
      socket.write('head, ');
      const timer = setTimeout(() => socket.write('a line'), 2500);
      socket.once('close', () => clearTimeout(timer));
    });
    socket.once('end', () => socket.end());
  });
}

/** Asks through each tunnel what nobody answers before `answer` is called: until then, each is in use. */
async function asked(scope: Scope, open: (destination: string) => Promise<Duplex[]>) {
  let questions = 0;
  const target = await destination(scope, (socket) => {
    socket.once('data', () => questions++).once('end', () => socket.end());
  });
  const tunnels = await open(target.authority);
  const heard = tunnels.map(heardOf);
  for (const tunnel of tunnels) tunnel.write('?');
  await until(() => questions === tunnels.length, { what: 'the questions at their destination' });
  const answer = async () => {
    for (const socket of target.sockets) socket.write('an answer');
    await until(() => heard.every((each) => each() === 'an answer'), { what: 'the answers' });
  };
  return { target, tunnels, answer };
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
      const onEach = (authority: string) =>
        Promise.all(PROTOCOLS.map((protocol) => dial(scope, server, protocol, authority)));
      const follows = await dial(scope, server, 'connect', log.authority);
      const logged = heardOf(follows);
      follows.write('GET');
      // Until it has written its line, it looks like an answer.
      await until(() => logged() === 'head, a line', { what: 'the line of the log' });
      const used = await asked(scope, onEach);
      const idle = await onEach(target.authority);
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
      // They have carried nothing for longer than those that were idle.
      assert.deepEqual([...used.tunnels, follows].map(stateOf), ['open', 'open', 'open', 'open']);
      await used.answer();
      const more = async () => {
        const fresh = await dial(scope, server, 'connect', target.authority);
        await carries(fresh);
        fresh.destroy();
      };
      if (drains === 'agent') await goesTo(server, [first, second], [second], more);
      const failures = () => [target, log, used.target].flatMap((each) => each.failures);
      assert.deepEqual(failures(), []);
      for (const tunnel of [...used.tunnels, follows]) tunnel.resume().end();
      const { code } = await draining.ended();
      assert.equal(code, 0);
      assert.deepEqual(failures(), []);
    }),
  );

test(
  'an agent drains for as long as --drain-timeout says, and then cuts what is in use',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { agentFlags: { 'drain-timeout': '3s', ...IDLE } });
    const [agent] = agents as [Program];
    // A unix socket has no reset.
    const { tunnels } = await asked(scope, async (authority) => [await dial(scope, server, 'mtls', authority)]);
    const [used] = tunnels as [Duplex];
    used.on('error', () => {});
    const start = performance.now();
    agent.signal('SIGTERM');
    assert.equal((await agent.ended()).code, 0);
    const ms = performance.now() - start;
    // A timer may fire a millisecond early.
    assert.ok(ms >= 2999, `${ms} ms`);
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
  'a draining agent that is kicked ends at once',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const used = await dial(scope, server, 'connect', target.authority);
    pinging(scope, used, 500);
    agent.signal('SIGTERM');
    await until(async () => (await agent.get('/readyz')).status !== 200, { what: 'the agent to drain' });
    await isthmus(server.program, 'kick', 'agent', 'agent-0');
    assert.equal((await agent.ended()).code, 0);
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

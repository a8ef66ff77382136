import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { destination } from '../edges/rig.ts';
import { allInOne, echo, type Program, type Scope, scoped, startAgent, tempDir, until } from '../harness/index.ts';
import { readRecords } from './audit-records.ts';
import { carries, closed, dial } from './dials.ts';
import { asked, isthmus } from './operator.ts';

/** Says something, and never ends by itself. */
const lasting = (scope: Scope) => destination(scope, (socket) => socket.on('data', (chunk) => socket.write(chunk)));

const resetting = (scope: Scope) => destination(scope, (socket) => socket.once('data', () => socket.resetAndDestroy()));

interface Cuts {
  readonly cuts: readonly Record<string, unknown>[];
  readonly groups: readonly { readonly by: string; readonly what: string; readonly tunnels: number }[];
}

interface Tunnels {
  readonly tunnels: readonly { readonly dial: string; readonly destination: string }[];
}

async function counted(program: Program): Promise<Record<string, number>> {
  const counts = await program.metric('isthmus_tunnels_cut_total');
  const cut = [...counts].filter(([, count]) => count > 0);
  return Object.fromEntries(cut.map(([labels, count]) => [/by="(\w+)"/.exec(labels)?.[1] ?? labels, count]));
}

test(
  'each end of a tunnel has one cause, and metric, audit, log and isthmus cuts agree on those that were cut',
  scoped(async (scope) => {
    const audit = `${await tempDir(scope)}/audit.log`;
    const plane = await allInOne(scope, {
      serverFlags: {
        'server-id': 'server-0',
        'audit-log': audit,
        'half-closed-timeout': '1s',
        'resume-timeout': '10s',
        'graceful-shutdown-timeout': '200ms',
      },
    });
    const { server, trust, agents } = plane;
    const { program } = server;
    const open = async (authority: string): Promise<Duplex> => {
      const tunnel = await dial(scope, server, 'connect', authority);
      tunnel.on('error', () => {});
      return tunnel;
    };
    const [target, lasts, resets] = [await echo(scope), await lasting(scope), await resetting(scope)];

    const ended = await open(target.authority);
    await carries(ended);
    // At once: on a busy machine, it could be half-closed for too long.
    ended.destroy();
    const reset = await open(resets.authority);
    reset.write('x');
    await closed(reset);

    const kicked = await open(lasts.authority);
    await carries(kicked);
    const plan = await isthmus(program, 'drain', 'server-0', '--dry-run');
    const { tunnels } = await asked<Tunnels>(program, 'tunnels');
    const [found] = tunnels.filter(({ destination: to }) => to === lasts.authority);
    assert.ok(found);
    assert.match(plan.out, new RegExp(`${lasts.authority} .* cut +${found.dial}`));
    await isthmus(program, 'kick', 'tunnel', found.dial, '--reason', 'in the way');
    await closed(kicked);

    const halfClosed = await open(lasts.authority);
    await carries(halfClosed);
    halfClosed.end();
    await closed(halfClosed);

    const orphans = [await open(lasts.authority), await open(lasts.authority)];
    for (const orphan of orphans) await carries(orphan);
    for (const agent of agents) await agent.kill();
    for (const orphan of orphans) await closed(orphan);

    await until(async () => (await counted(program)).agent === 2, { what: "both cuts by the agent's death" });
    assert.deepEqual(await counted(program), { operator: 1, limit: 1, agent: 2 });
    const { cuts, groups } = await asked<Cuts>(program, 'cuts');
    assert.deepEqual(
      cuts.map(({ by, destination: to, caller, agent }) => [by, to, caller !== '', agent]),
      ['agent', 'agent', 'limit', 'operator'].map((by) => [by, lasts.authority, true, 'agent-0']),
    );
    assert.equal(cuts[3]?.dial, found.dial);
    assert.equal(cuts[3]?.reason, 'ended by an operator: in the way');
    assert.deepEqual(groups.map(({ by, what, tunnels: count }) => [by, what, count]).slice(0, 1), [
      ['agent', 'agent agent-0', 2],
    ]);

    await (await startAgent(scope, trust, server.agentPort, { 'agent-id': 'agent-1' })).waitReady();
    const last = await open(lasts.authority);
    await carries(last);
    program.signal('SIGTERM');
    await closed(last);
    await program.exit;
    const records = readRecords(audit);
    assert.deepEqual(
      records.map(({ closed: end, cut }) => cut ?? end?.by).sort(),
      ['agent', 'agent', 'caller', 'destination', 'gateway', 'limit', 'operator'].sort(),
    );
    const warned = program.logs.filter(({ level, cut }) => level === 'warn' && cut);
    assert.deepEqual(warned.map(({ cut }) => cut).sort(), ['agent', 'agent', 'gateway', 'limit', 'operator']);
    for (const { destination: to, caller, ms, up } of warned)
      assert.deepEqual([to, typeof caller, typeof ms, up], [lasts.authority, 'string', 'number', 4]);
  }),
);

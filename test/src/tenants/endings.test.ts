import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { echo, type Program, Scope, startAgent, tempDir, tunnelThrough, until } from '../harness/index.ts';
import { bystander } from '../hostile/rig.ts';
import { closed } from '../plane/dials.ts';
import { type Row, rows, SOON } from './endings.ts';
import { addCluster, callerOf, type TenantsPlane, tenantsPlane } from './rig.ts';

/**
 * How long an ending may take, in milliseconds, on a machine that does other work. That the plane's own clock promises 10 s is tested where a
 * test moves that clock: libs/plane/src/tenancy/endings.test.ts.
 */
const DEADLINE = 60_000;

interface Closed {
  readonly record?: string;
  readonly state?: string;
  readonly agent?: string;
  readonly tenant?: string;
  readonly text?: string;
  readonly closed?: { readonly by: string; readonly text?: string };
}

function recordsOf(path: string, tenant: string): Closed[] {
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
  return lines.map((line) => JSON.parse(line) as Closed).filter((record) => record.tenant === tenant);
}

test('what stood on a credential ends with it, and nothing else', { skip: redisMissing() }, async (t) => {
  await using scope = new Scope();
  const plane = await tenantsPlane(scope);
  const other = await addCluster(scope, plane, 'bystander');
  const destination = await echo(scope);
  const programs: Program[] = [plane.gateway.program, plane.hub.program, other.agent];
  const via = await callerOf(plane, other.trust);
  const beside = await bystander(scope, via, destination.authority, programs);
  const ending = async (row: Row, opened: () => void) => {
    await using own = new Scope();
    await endsWith(own, plane, `tenant-${rows.indexOf(row)}`, row, destination.authority, opened);
  };
  const over = new Map<Row, Promise<void>>();
  const begun = (row: Row) =>
    new Promise<void>((resolve) => {
      const end = ending(row, resolve);
      over.set(row, end);
      end.catch(() => resolve());
    });
  // They wait side by side, but connect one after the other, so that the programs are not too busy to answer the bystander's PINGs. What takes
  // its time by the clock is first.
  for (const row of rows.filter(({ expires }) => expires)) await begun(row);
  for (const row of rows.filter(({ expires }) => !expires)) await begun(row);
  for (const row of rows) {
    await t.test(row.name, async () => {
      await over.get(row);
      await beside.unharmed();
    });
  }
  const sessions = recordsOf(plane.audit.hub, 'bystander').filter(({ record }) => record === 'session');
  assert.deepEqual(
    sessions.map(({ state }) => state),
    ['opened'],
    `the bystander kept its session: ${JSON.stringify(sessions)}`,
  );
});

async function endsWith(
  scope: Scope,
  plane: TenantsPlane,
  name: string,
  row: Row,
  destination: string,
  opened: () => void,
): Promise<void> {
  const { directory, gateway, hub, audit } = plane;
  const trust = await directory.trust(name);
  scope.defer(() => rm(join(directory.path, `${name}.yaml`), { force: true }));
  const { file, agent, agentFlags, caller, act } = await row.prepare({ plane, trust, dir: await tempDir(scope) });
  await directory.write({ ...trust.file, ...file });
  const { cert, key } = agent ?? (await trust.agent('edge-1'));
  const flags = { 'agent-id': 'edge-1', 'agent-cert': cert, 'agent-key': key, ...agentFlags };
  const edge = await startAgent(scope, plane.trust, hub.agentPort, flags);
  await edge.waitReady();
  const via = await callerOf(plane, trust, caller);
  const dialled = () => tunnelThrough(scope, { via, destination }).catch(() => undefined);
  const tunnel = await until(dialled, { what: `a tunnel of ${name}` });
  // It comes after the tunnel, which it must not carry.
  if (row.beside) {
    const other = await trust.agent('edge-2');
    const identity = { 'agent-id': 'edge-2', 'agent-cert': other.cert, 'agent-key': other.key };
    await (await startAgent(scope, plane.trust, hub.agentPort, identity)).waitReady();
  }
  opened();
  await act();
  const wait = { deadline: DEADLINE + SOON };
  if (row.ends !== 'caller') {
    // An agent may have closed a session of its own accord before.
    const expelled = (record: Closed) => record.state === 'closed' && row.why.test(record.text ?? '');
    const gone = () => recordsOf(audit.hub, name).find(expelled);
    const what = () => `the end of ${name}'s session, with ${row.why} in the hub's audit${hub.program.tail}`;
    assert.equal((await until(gone, { ...wait, what })).agent, 'edge-1');
    const logged = (line: object & { msg?: unknown; tenant?: unknown }) =>
      line.msg === 'session closed' && line.tenant === name && row.why.test(JSON.stringify(line));
    await hub.program.waitForLog(logged, { what: `the end of ${name}'s session in the log` });
    await edge.waitForLine(row.why);
  }
  await closed(tunnel);
  const ended = () => recordsOf(audit.gateway, name).find((record) => record.closed !== undefined);
  const record = await until(ended, { ...wait, what: () => `the end of ${name}'s tunnel${gateway.program.tail}` });
  assert.equal(record.closed?.by, 'plane');
  // If both ended, either may have been first.
  const text = record.closed?.text ?? '';
  if (row.ends === 'caller') assert.match(text, row.why, 'in the audit trail of the gateway');
  const ofOther = recordsOf(audit.hub, name).filter(({ state, agent }) => state === 'closed' && agent === 'edge-2');
  assert.ok(!ofOther.some(({ text = '' }) => row.why.test(text)), 'edge-2 stands on a valid credential');
}

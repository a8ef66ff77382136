import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { type Destination, echo, type Member, type Scope, scoped, sharedByFile, until } from '../harness/index.ts';
import { carries, closed, dial } from './dials.ts';
import { type HubPlane, type HubPlaneOptions, hubPlane, wholeAgain } from './hub-plane.ts';
import { type OldHub, oldHub } from './old-hub.ts';

const skip = redisMissing();

/** Longer than any test: a hub that has to wait for a tunnel goes on. */
const PATIENT = { 'graceful-shutdown-timeout': '10m' };

/** A gateway or agent with 0 is like one of a version without resuming: it neither offers it nor answers an offer. */
const WITHOUT: readonly [name: string, options: HubPlaneOptions][] = [
  ['the gateway', { gatewayFlags: { 'resume-timeout': 0 } }],
  ['the agent', { agentFlags: { 'resume-timeout': 0 } }],
];

/** Opens tunnels until one goes through a hub, and keeps that one. */
async function dialThrough(scope: Scope, plane: HubPlane, destination: Destination, hubId: string): Promise<Duplex> {
  for (;;) {
    // That of an earlier test may still end.
    await until(async () => (await plane.gateway.tunnels()).length === 0, { what: 'no tunnel' });
    const tunnel = await dial(scope, plane.ways, 'connect', destination.authority);
    await carries(tunnel);
    if ((await plane.gateway.tunnels())[0]?.hubId === hubId) return tunnel;
    tunnel.destroy();
  }
}

/** A hub drains: its tunnel stays, new dials go elsewhere, and the hub ends with the tunnel. */
async function waitsForItsTunnel(scope: Scope, plane: HubPlane, destination: Destination): Promise<void> {
  const [hub] = plane.hubs as [Member];
  const tunnel = await dialThrough(scope, plane, destination, hub.id);
  hub.program.signal('SIGTERM');
  const gone = async () => (await plane.gateway.sessions()).every(({ hubId }) => hubId !== hub.id);
  await until(gone, { what: `${hub.id} to give up its session` });
  const other = await dial(scope, plane.ways, 'connect', destination.authority);
  await carries(other);
  other.destroy();
  await carries(tunnel, 'still here');
  assert.deepEqual([hub.running, (await plane.gateway.tunnels())[0]?.hubId], [true, hub.id]);
  tunnel.destroy();
  assert.deepEqual(await hub.program.ended(), { code: 0, signal: null });
  await hub.restart();
}

for (const [who, options] of WITHOUT) {
  test(
    `if ${who} cannot resume, a tunnel ends with its hub, and a hub that drains waits for it`,
    { skip, timeout: 120_000 },
    scoped(async (scope) => {
      const plane = await hubPlane(scope, { hubs: 2, hubFlags: PATIENT, ...options });
      const [hub] = plane.hubs as [Member];
      const destination = await echo(scope);
      await waitsForItsTunnel(scope, plane, destination);
      await wholeAgain(plane);
      const tunnel = await dialThrough(scope, plane, destination, hub.id);
      assert.equal((await plane.gateway.tunnels())[0]?.resume, undefined);
      await hub.kill();
      await closed(tunnel);
      await until(() => destination.open === 0, { what: 'the end at the destination' });
    }),
  );
}

/** A hub of today and one of before, and an agent with a session to each. */
async function mixed(scope: Scope, namesInstances: boolean): Promise<{ plane: HubPlane; old: OldHub }> {
  const plane = await hubPlane(scope, { hubs: 1, hubFlags: PATIENT });
  return { plane, old: await oldHub(scope, { ...plane, namesInstances }) };
}

const withoutResuming = sharedByFile((scope) => mixed(scope, false));
const withoutAttach = sharedByFile((scope) => mixed(scope, true));

/** Returns a mixed plane that earlier tests have left whole. */
async function mixedAgain(namesInstances = false): Promise<{ plane: HubPlane; old: OldHub }> {
  const both = await (namesInstances ? withoutAttach : withoutResuming)();
  await wholeAgain(both.plane, 2);
  return both;
}

test(
  'a hub that is rolled waits for its tunnels if they could only move to a hub of a version without resuming',
  { skip, timeout: 120_000 },
  scoped(async (scope) => {
    const { plane } = await mixedAgain();
    await waitsForItsTunnel(scope, plane, await echo(scope));
  }),
);

for (const namesInstances of [false, true]) {
  const what = namesInstances ? 'names agents, but passes on no attach' : 'is of a version without resuming';
  test(
    `a tunnel that has lost its hub waits for it while the only other one ${what}`,
    { skip, timeout: 120_000 },
    scoped(async (scope) => {
      const { plane, old } = await mixedAgain(namesInstances);
      const [hub] = plane.hubs as [Member];
      const destination = await echo(scope);
      const tunnel = await dialThrough(scope, plane, destination, hub.id);
      const before = old.attaches;
      await hub.kill();
      const detached = async () => (await plane.gateway.tunnels())[0]?.resume?.attached === false;
      await until(detached, { what: 'a tunnel that waits' });
      if (namesInstances) await until(() => old.attaches > before, { what: 'an attach' });
      await hub.restart();
      await carries(tunnel, 'back again');
      assert.equal((await plane.gateway.tunnels())[0]?.hubId, hub.id);
      if (!namesInstances) assert.equal(old.attaches, before);
      await until(() => destination.open === 1, { what: 'the end of what attaches have opened' });
      tunnel.destroy();
    }),
  );
}

test(
  'a tunnel stays where it is while the hub to which it would move passes on no attach',
  { skip, timeout: 120_000 },
  scoped(async (scope) => {
    const { plane, old } = await mixedAgain(true);
    const [hub] = plane.hubs as [Member];
    const destination = await echo(scope);
    const tunnel = await dialThrough(scope, plane, destination, hub.id);
    const before = old.attaches;
    hub.program.signal('SIGTERM');
    await until(() => old.attaches > before, { what: 'an attempt to move' });
    await carries(tunnel, 'still here');
    const [listed] = await plane.gateway.tunnels();
    assert.deepEqual([listed?.hubId, listed?.resume?.attached, listed?.resume?.moves], [hub.id, true, 0]);
    assert.ok(hub.running);
    tunnel.destroy();
    assert.deepEqual(await hub.program.ended(), { code: 0, signal: null });
    await hub.restart();
  }),
);

// The last one: the hub of before does not come back.
test(
  'a tunnel through a hub of a version without resuming ends with it',
  { skip, timeout: 120_000 },
  scoped(async (scope) => {
    const { plane, old } = await mixedAgain();
    const destination = await echo(scope);
    const tunnel = await dialThrough(scope, plane, destination, old.hubId);
    assert.equal((await plane.gateway.tunnels())[0]?.resume, undefined);
    old.die();
    await closed(tunnel);
    await until(() => destination.open === 0, { what: 'the end at the destination' });
  }),
);

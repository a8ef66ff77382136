import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import type { Quarantine, Registry } from '../registry.ts';
import { heldBy, hubRecord, member, Observer, sessionRecord } from './observer.ts';

const AGENT = { tenant: 'default', agentId: 'a1' };

/** One plane. `connect` returns a registry of one more process. */
export interface ContractPlane {
  connect(): Registry;
  close(): Promise<void>;
}

export interface ContractOptions {
  readonly skip?: string | false;
}

/** Tests what every registry must do, whatever store is behind the port. */
export function registryContract(
  name: string,
  open: () => Promise<ContractPlane>,
  options: ContractOptions = {},
): void {
  describe(`registry contract: ${name}`, { skip: options.skip ?? false }, () => {
    let plane: ContractPlane;
    let registry: Registry;
    let observer: Observer;

    beforeEach(async () => {
      plane = await open();
      registry = plane.connect();
      observer = new Observer(plane.connect());
      await observer.until('a first snapshot', () => observer.snapshots === 1);
    });

    afterEach(async () => {
      observer.stop();
      await plane.close();
    });

    /** The members without the time of their last words, which differs each time. */
    const listed = async () => (await registry.members()).map(({ quietMs: _quietMs, ...joined }) => joined);

    it('starts a watch with a snapshot of an empty plane', () => {
      assert.deepEqual(observer.hubIds, []);
      assert.deepEqual(observer.sessions, []);
    });

    it('reports a hub and its sessions to watchers, the hub first', async () => {
      const hub = hubRecord('h1');
      registry.register(hub).announce(sessionRecord(hub, 's1'));
      await observer.until('s1', () => observer.has('s1'));
      assert.deepEqual(observer.hub('h1'), hub);
      assert.deepEqual(observer.sessions, [sessionRecord(hub, 's1')]);
      assert.equal(observer.changes[0]?.kind, 'hub');
      assert.equal(observer.snapshots, 1);
    });

    it('gives a late watcher everything in its first snapshot', async () => {
      const hub = hubRecord('h1');
      registry.register(hub).announce(sessionRecord(hub, 's1'));
      await observer.until('s1', () => observer.has('s1'));
      const late = new Observer(plane.connect());
      await late.until('a snapshot', () => late.snapshots === 1);
      assert.deepEqual(late.sessionIds, ['s1']);
      assert.deepEqual(late.changes, []);
      late.stop();
    });

    it('withdraws a session and keeps the others', async () => {
      const hub = hubRecord('h1');
      const registration = registry.register(hub);
      registration.announce(sessionRecord(hub, 's1'));
      registration.announce(sessionRecord(hub, 's2'));
      await observer.until('both', () => observer.sessions.length === 2);
      registration.withdraw('s1', 2);
      await observer.until('s1 gone', () => !observer.has('s1'));
      assert.deepEqual(observer.sessionIds, ['s2']);
    });

    it('reports a changed session, and ignores an older version of it', async () => {
      const hub = hubRecord('h1');
      const registration = registry.register(hub);
      registration.announce(sessionRecord(hub, 's1', 5));
      await observer.until('s1', () => observer.has('s1'));
      registration.announce(sessionRecord(hub, 's1', 4, { agentId: 'stale' }));
      registration.withdraw('s1', 3);
      registration.announce(sessionRecord(hub, 's1', 6, { draining: true }));
      await observer.until('draining', () => observer.sessions[0]?.draining === true);
      assert.equal(observer.sessions[0]?.agentId, 'agent-of-s1');
      assert.deepEqual(observer.opened, ['s1', 's1']);
    });

    it("reports a change of a hub's record without touching its sessions", async () => {
      const hub = hubRecord('h1');
      const registration = registry.register(hub);
      registration.announce(sessionRecord(hub, 's1'));
      await observer.until('s1', () => observer.has('s1'));
      registration.drain();
      await observer.until('draining', () => observer.hub('h1')?.draining === true);
      assert.deepEqual(observer.sessionIds, ['s1']);
    });

    it('removes a closed hub with all its sessions', async () => {
      const [left, stays] = [hubRecord('h1'), hubRecord('h2')];
      const registration = registry.register(left);
      registration.announce(sessionRecord(left, 's1'));
      registry.register(stays).announce(sessionRecord(stays, 's2'));
      await observer.until('both', () => observer.sessions.length === 2);
      await registration.close();
      await observer.until('h1 gone', () => observer.hub('h1') === undefined);
      assert.deepEqual(observer.sessionIds, ['s2']);
      assert.deepEqual((await heldBy(registry)).hubs, [stays]);
    });

    it('lets a later incarnation replace an earlier one, which is told and stops writing', async () => {
      const [old, young] = [hubRecord('h1', 1), hubRecord('h1', 2)];
      const before = registry.register(old);
      before.announce(sessionRecord(old, 's1'));
      await observer.until('s1', () => observer.has('s1'));
      plane.connect().register(young).announce(sessionRecord(young, 's2'));
      await observer.until('s2 alone', () => observer.has('s2') && !observer.has('s1'));
      before.announce(sessionRecord(old, 's3'));
      assert.deepEqual(await before.superseded, young);
      await before.close();
      assert.deepEqual(await heldBy(registry), {
        hubs: [young],
        sessions: [sessionRecord(young, 's2')],
        quarantines: [],
      });
    });

    it('lets a process that started later take over although its clock says that it is earlier', async () => {
      const [late, soon] = [hubRecord('h1', 9), hubRecord('h1', 2)];
      const before = registry.register(late);
      before.announce(sessionRecord(late, 's1'));
      await observer.until('s1', () => observer.has('s1'));
      const after = plane.connect().register(soon);
      after.announce(sessionRecord(soon, 's2'));
      after.announce(sessionRecord(soon, 's3'));
      await observer.until('s2 and s3 alone', () => observer.sessionIds.join() === 's2,s3');
      before.announce(sessionRecord(late, 's1', 5));
      await before.superseded;
      after.drain();
      after.withdraw('s3', 2);
      await observer.until('s2 alone', () => observer.sessionIds.join() === 's2');
      await observer.until('draining', () => observer.hub('h1')?.draining === true);
      assert.deepEqual(await heldBy(registry), {
        hubs: [{ ...soon, incarnation: 10, draining: true }],
        sessions: [{ ...sessionRecord(soon, 's2'), incarnation: 10 }],
        quarantines: [],
      });
      await after.close();
      await observer.until('h1 gone', () => observer.hub('h1') === undefined);
    });

    it('lists the members that joined, until they leave', async () => {
      const [hub, gateway] = [member('b'), member('a', { roles: ['gateway'], zone: 'z' })];
      const joined = registry.join(hub);
      plane.connect().join(gateway);
      await until(async () => (await registry.members()).length === 2, 'two members');
      assert.deepEqual(await listed(), [gateway, hub]);
      await joined.close();
      assert.deepEqual(await listed(), [gateway]);
    });

    it('lists two processes with the same id, the elder first', async () => {
      const [elder, younger] = [member('a', { since: 1 }), member('a', { since: 2 })];
      plane.connect().join(younger);
      const joined = registry.join(elder);
      await until(async () => (await registry.members()).length === 2, 'two members');
      assert.deepEqual(await listed(), [elder, younger]);
      await joined.close();
      assert.deepEqual(await listed(), [younger]);
    });

    it('reports to watchers that an agent is put in quarantine and released', async () => {
      assert.equal(await registry.quarantine(AGENT, 'leaks "memory"'), true);
      await observer.until('quarantine', () => 'a1' in observer.quarantined);
      assert.deepEqual(observer.quarantined, { a1: 'leaks "memory"' });
      const late = new Observer(plane.connect());
      await late.until('a snapshot', () => late.snapshots === 1);
      assert.deepEqual([late.quarantined, late.changes], [observer.quarantined, []]);
      late.stop();
      const [{ version, ...said }] = (await heldBy(registry)).quarantines as [Quarantine];
      assert.deepEqual(said, { ...AGENT, reason: 'leaks "memory"' });
      assert.ok(Math.abs(version - Date.now()) < 60_000, `${version}`);
      assert.equal(await plane.connect().quarantine(AGENT, undefined), true);
      await observer.until('its end', () => !('a1' in observer.quarantined));
    });

    it('returns whether a quarantine changed anything, and keeps the last of two reasons', async () => {
      const other = plane.connect();
      assert.equal(await other.quarantine(AGENT, undefined), false);
      assert.equal(await registry.quarantine(AGENT, 'first'), true);
      assert.equal(await other.quarantine(AGENT, 'first'), false);
      assert.equal(await other.quarantine(AGENT, ''), true);
      await observer.until('the second reason', () => observer.quarantined.a1 === '');
      await other.quarantine({ ...AGENT, tenant: 'other' }, 'another tenant');
      assert.equal(await registry.quarantine(AGENT, undefined), true);
      assert.equal(await registry.quarantine(AGENT, undefined), false);
      const { quarantines } = await heldBy(registry);
      const inForce = quarantines.filter(({ reason }) => reason !== undefined);
      assert.deepEqual(
        inForce.map(({ tenant, reason }) => [tenant, reason]),
        [['other', 'another tenant']],
      );
    });

    it('rejects texts of a quarantine that are too long', async () => {
      for (const [agent, reason] of [
        [AGENT, 'x'.repeat(501)],
        [{ ...AGENT, agentId: 'x'.repeat(1001) }, ''],
        [{ ...AGENT, tenant: 'x'.repeat(254) }, undefined],
        [{ ...AGENT, agentId: '' }, ''],
      ] as const) {
        await assert.rejects(registry.quarantine(agent, reason), RangeError);
      }
    });

    it('does not call a stopped watcher', async () => {
      const other = new Observer(plane.connect());
      await other.until('a snapshot', () => other.snapshots === 1);
      other.stop();
      registry.register(hubRecord('h1'));
      await observer.until('h1', () => observer.hubIds.length === 1);
      assert.deepEqual(other.changes, []);
    });
  });
}

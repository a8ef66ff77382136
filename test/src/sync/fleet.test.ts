import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { adminClient } from '@isthmus/admin/testing/client';
import { type Program, residentBytes, scoped, tempDir, times, unlessBundled, until } from '../harness/index.ts';
import { Fleet } from '../scale/fleet.ts';
import type { Member } from '../scale/messages.ts';
import { DialResults, dialTenant } from '../scale/tenants/callers.ts';
import { type Hosted, Hosting } from '../scale/tenants/hosted.ts';
import { TenantTrust } from '../tenants/tenant-trust.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { namespaceOf, secretOf, tenantOf } from './objects.ts';
import { startSyncedPlane } from './synced.ts';

const TENANTS = 1000;
const ROTATED = 100;
const NAMESPACES = 10;
/** Of each kind. */
const MEMBERS = 2;
/** What a sync may have resident with all of them. */
const SYNC_MIB = 120;
/** Tenants that kubectl creates in one call. */
const AT_ONCE = 100;
/** How long tenants may take until they are in force at all members, once kubectl is done. */
const IN_FORCE_MS = 60_000;
/** How long it may take until each of the callers has dialled twice. */
const DIALS_MS = 120_000;
/** Callers that dial at the same time. */
const LANES = 8;
/** Between two dials of a caller while CAs are rotated: 50 dials a second in all. */
const PAUSE_MS = 2000;

/** What stands in a tenant's secret: PEM by key. */
type Secret = Readonly<Record<'agents.crt' | 'callers.crt' | 'tls.crt' | 'tls.key', string>>;

const text = (path: string) => readFileSync(path, 'utf8');

function secretFor({ cluster, callers, server }: TenantTrust): Secret {
  const [agents, own] = [text(cluster.cert), text(callers.cert)];
  return { 'agents.crt': agents, 'callers.crt': own, 'tls.crt': text(server.cert), 'tls.key': text(server.key) };
}

const placeOf = (number: number) => [`fleet-${number % NAMESPACES}`, `t-${number}`] as const;

function objectOf({ name, trust }: Hosted, number: number): object {
  const [namespace, object] = placeOf(number);
  const ref = (key: keyof Secret) => ({ secretRef: { name: object, key } });
  return tenantOf(namespace, object, {
    tenant: name,
    server: { serverNames: [trust.serverName], certificate: ref('tls.crt'), key: ref('tls.key') },
    agents: [{ certificates: { ca: ref('agents.crt') } }],
    callers: [{ certificates: { ca: ref('callers.crt') } }],
  });
}

/** What a member has of each tenant: a digest by name, which is another one after each change. */
async function statesAt({ healthHost, adminPort }: Program): Promise<Map<string, string>> {
  using connection = adminClient(`${healthHost}:${adminPort}`);
  const { tenants } = await connection.admin.listTenants({});
  return new Map(tenants.map(({ name, state }) => [name, state]));
}

describe('A thousand tenants that kubectl creates', { skip: noApiServer }, () => {
  test(
    'are in force at all members within a minute, dial through their own agents, and lose no dial while a hundred CAs are rotated',
    scoped(async (scope, context) => {
      const seconds = (from: number) => `${((performance.now() - from) / 1000).toFixed(1)} s`;
      const kube = await KubernetesApi.start(scope);
      await kube.apply(
        namespaceOf('plane'),
        ...Array.from({ length: NAMESPACES }, (_, n) => namespaceOf(`fleet-${n}`)),
      );
      const flags = { 'status-namespace': 'plane' };
      const { trust, hubs, gateways, syncs } = await startSyncedPlane(scope, kube, { each: MEMBERS, flags });
      const members = [...hubs, ...gateways].map(({ program }) => program);
      const ports = gateways.map(({ mtls }) => mtls.port);
      const hosting = await Hosting.create(scope);
      await hosting.grow(TENANTS, 1);

      const secrets = hosting.tenants.map(({ trust: own }, n) => secretOf(...placeOf(n), secretFor(own)));
      const start = performance.now();
      const objects = hosting.tenants.map((tenant, n) => [secrets[n] ?? {}, objectOf(tenant, n)]);
      for (let n = 0; n < TENANTS; n += AT_ONCE) await kube.apply(...objects.slice(n, n + AT_ONCE).flat());
      context.diagnostic(`kubectl took ${seconds(start)} for ${TENANTS} tenants and their secrets`);
      const applied = performance.now();
      let counts: number[] = [];
      await until(
        async () => {
          counts = await Promise.all(members.map((member) => member.value('isthmus_tenants')));
          return counts.every((count) => count === TENANTS);
        },
        { deadline: IN_FORCE_MS, what: () => `${TENANTS} tenants at each member: ${counts}` },
      );
      context.diagnostic(`in force at ${members.length} members ${seconds(applied)} after that`);

      const hubPorts = hubs.map(({ agentPort }) => agentPort);
      const tls = { ca: trust.agents.cert, ...(await trust.agents.client('agent')) };
      const own = { hubPorts, tls, sessionCount: MEMBERS, rebalanceTime: 1000, members: hosting.members };
      const fleet = scope.use(new Fleet(own));
      const connecting = performance.now();
      fleet.grow(TENANTS);
      await fleet.complete();
      context.diagnostic(`${TENANTS} agents have their sessions after ${seconds(connecting)}`);
      await until(
        async () => {
          counts = await Promise.all(gateways.map(({ program }) => program.value('isthmus_known_sessions')));
          return counts.every((count) => count === TENANTS * MEMBERS);
        },
        { deadline: IN_FORCE_MS, what: () => `all sessions at each gateway: ${counts}` },
      );

      const callers = [...hosting.tenants];
      const dial = (caller: Hosted | undefined, index: number, results: DialResults) =>
        dialTenant(caller as Hosted, ports[index % ports.length] as number, results);
      const first = new DialResults();
      const lane = async (number: number) => {
        for (let n = number; n < TENANTS; n += LANES) await dial(callers[n], n, first);
      };
      await times(LANES, lane);
      assert.deepEqual([first.latencies.length, first.crossed, first.failures], [TENANTS, [], []]);

      const rotated = hosting.tenants.slice(0, ROTATED);
      const next = await times(ROTATED, async (n) => TenantTrust.create(await tempDir(scope), rotated[n]?.name ?? ''));
      /** Writes the CAs of all rotated tenants, and waits until each member has read them. */
      const rotate = async (casOf: (old: Secret, fresh: Secret) => Partial<Secret>) => {
        const before = await statesAt(members[0] as Program);
        const changed = rotated.map(({ trust: old }, n) => {
          const [had, has] = [secretFor(old), secretFor(next[n] as TenantTrust)];
          return secretOf(...placeOf(n), { ...had, ...casOf(had, has) });
        });
        await kube.apply(...changed);
        const since = performance.now();
        let missing = 0;
        const isRead = async () => {
          const states = await Promise.all(members.map(statesAt));
          missing = rotated.filter(({ name }) => states.some((each) => each.get(name) === before.get(name))).length;
          return missing === 0;
        };
        await until(isRead, { deadline: IN_FORCE_MS, every: 500, what: () => `${missing} more tenants with new CAs` });
        return seconds(since);
      };

      const load = new DialResults();
      let over = false;
      const dials = new Array<number>(ROTATED).fill(0);
      const dialling = times(ROTATED, async (n) => {
        for (; !over; dials[n] = (dials[n] ?? 0) + 1) {
          await dial(callers[n], (dials[n] ?? 0) + n, load);
          await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        }
      });
      /** Waits until each caller has begun and ended a dial since now. */
      const dialledAgain = () => {
        const then = [...dials];
        return until(() => dials.every((count, n) => count >= (then[n] ?? 0) + 2), {
          deadline: DIALS_MS,
          what: 'dials of all callers',
        });
      };
      const both = await rotate((old, fresh) => ({
        'agents.crt': old['agents.crt'] + fresh['agents.crt'],
        'callers.crt': old['callers.crt'] + fresh['callers.crt'],
      }));
      // As in a rolling update: agents and callers with new certificates come before those with old ones leave.
      for (const n of rotated.keys())
        hosting.members.push({
          ...(hosting.members[n] as Member),
          agentId: 'agent-new',
          ...(await next[n]?.agent('agent-new')),
        });
      fleet.grow(TENANTS + ROTATED);
      await fleet.complete();
      fleet.stop(rotated.map((_, n) => n));
      const old = callers.slice(0, ROTATED);
      for (const [n, tenant] of rotated.entries()) {
        const caller = (await next[n]?.caller()) ?? tenant.caller;
        callers[n] = { ...tenant, caller };
      }
      await fleet.complete();
      await dialledAgain();
      const alone = await rotate((_, fresh) => ({
        'agents.crt': fresh['agents.crt'],
        'callers.crt': fresh['callers.crt'],
      }));
      await dialledAgain();
      over = true;
      await dialling;
      context.diagnostic(
        `${ROTATED} CAs: both in force ${both} after kubectl, the new alone ${alone}; ${load.latencies.length} dials`,
      );
      assert.deepEqual([load.failures, load.crossed], [[], []]);
      const refused = new DialResults();
      for (const caller of old.slice(0, LANES)) await dial(caller, 0, refused);
      assert.deepEqual([refused.latencies.length, refused.failures.length], [0, LANES]);

      const mib = ({ pid }: Program) => Math.round(residentBytes(pid) / 2 ** 20);
      const ofSyncs = syncs.map(({ program }) => mib(program));
      context.diagnostic(`MiB: syncs ${ofSyncs}; hubs and gateways ${members.map(mib)}`);
      if (!unlessBundled()) assert.ok(Math.max(...ofSyncs) <= SYNC_MIB, `${ofSyncs} MiB`);
    }),
  );
});

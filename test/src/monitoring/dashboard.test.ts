import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { connectThrough, type Destination, eventually, type Scope, scoped } from '../harness/index.ts';
import {
  addCluster,
  type Cluster,
  callerOf,
  dialled,
  type TenantsPlane,
  tenantAgent,
  tenantsPlane,
} from '../tenants/rig.ts';
import { panels } from './files.ts';
import { prometheus } from './promtool.ts';
import { Scraper } from './scraper.ts';

/** What only a bug, a loss or a stopped reader counts. A healthy plane has no data for them, and must not. */
const ONLY_FAULTS = ['Faults', 'Tunnels ended for stopped readers', 'Audit records lost', 'Pauses of resumed tunnels'];

/** How long it may take until all queries have data, in milliseconds: each round asks a hundred. */
const PATIENT = { deadline: 240_000 };

interface Query {
  readonly title: string;
  readonly expr: string;
}

const queries: readonly Query[] = panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ refId, expr }) => ({ title: `${title} ${refId}`, expr })),
);

/** Sets a dashboard's variables. */
function filled(expr: string, tenant: string): string {
  return expr
    .replaceAll(/\$(job|instance)/g, '.*')
    .replaceAll('$tenant', tenant)
    .replaceAll('$__rate_interval', '1m');
}

function addressOf({ host, port }: Destination): string {
  return `${host}:${port}`;
}

/** Dials of all kinds: some become tunnels, others are refused by the destination, by a limit or for want of an agent. */
async function load(scope: Scope, plane: TenantsPlane, clusters: readonly Cluster[]): Promise<void> {
  for (const { trust, destination } of clusters) {
    const via = await callerOf(plane, trust);
    for (const to of [addressOf(destination), '127.0.0.1:1']) await dialled(scope, via, to);
    await Promise.all(Array.from({ length: 12 }, () => dialled(scope, via, addressOf(destination))));
  }
}

test(
  'every query of the dashboard has data from a plane under load, also for one tenant',
  { skip: (prometheus === undefined && 'Prometheus is not installed') || redisMissing() },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    const limits = { limits: { dialsPerSecond: 5, tunnels: 100, pendingDials: 100, bytesPerSecond: 1_000_000 } };
    const acme = await addCluster(scope, plane, 'acme', limits);
    const clusters = [acme, await addCluster(scope, plane, 'beta', limits)];
    for (const { trust, destination } of clusters) {
      // Stays open: a tenant without tunnels has none to count.
      const via = await callerOf(plane, trust);
      const { status } = await connectThrough(scope, { via, destination: addressOf(destination) });
      assert.equal(status, 200);
    }
    // Its authority is nobody's here: the hub refuses it, again and again.
    const stranger = await tenantAgent(
      scope,
      plane,
      acme.trust,
      'stranger',
      {},
      await plane.trust.agents.client('stranger'),
    );
    const scraper = await Scraper.start(scope, {
      'frontend-gw': [plane.gateway.program],
      'backend-hub': [plane.hub.program],
      'proxy-agent': [...clusters.map(({ agent }) => agent), stranger],
    });
    const empty = async () => {
      const found = await Promise.all(
        queries.map(async ({ expr }) => (await scraper.query(filled(expr, '.*'))).length),
      );
      return queries.filter((_, index) => found[index] === 0).map(({ title }) => title);
    };
    await eventually(async () => {
      await load(scope, plane, clusters);
      assert.deepEqual(
        (await empty()).filter((title) => !ONLY_FAULTS.some((each) => title.startsWith(each))),
        [],
      );
    }, PATIENT);
    const ofTenants = queries.filter(({ expr }) => expr.includes('$tenant'));
    assert.ok(ofTenants.length > 10);
    await eventually(async () => {
      await load(scope, plane, clusters);
      for (const { title, expr } of ofTenants) {
        const samples = await scraper.query(filled(expr, 'acme'));
        assert.ok(samples.length > 0, `${title} has no data of acme`);
        assert.deepEqual([...new Set(samples.map(({ metric }) => metric.tenant ?? 'acme'))], ['acme'], title);
      }
    }, PATIENT);
  }),
);

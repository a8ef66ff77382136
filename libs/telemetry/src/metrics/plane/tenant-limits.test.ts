import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DialLimits, RefusingLimit } from '@isthmus/tunnel';
import { beginning, server } from '../exposition/testing.ts';
import type { LimitedTenant } from './tenant-limits.ts';

const limits: DialLimits = {
  dialsPerSecond: 200,
  burst: 400,
  pendingDials: 100,
  tunnels: 5000,
  bytesPerSecond: Number.POSITIVE_INFINITY,
  bytesQueued: 1e6,
};

function tenant(name: string): LimitedTenant {
  const refused = new Map<RefusingLimit, number>([['dialsPerSecond', 3]]);
  const rates = { dialsPerSecond: 7, bytesPerSecond: 8 };
  return { name, limits, use: { pendingDials: 1, tunnels: 2, bytesQueued: 4, dials: 5, bytes: 6, refused, ...rates } };
}

const FAMILIES = ['limit', 'use', 'refused_dials_total'];

async function limitLines(metrics: ReturnType<typeof seeing>) {
  const lines = Object.entries(await beginning(metrics, 'isthmus_tenant_'));
  return Object.fromEntries(lines.filter(([line]) => FAMILIES.some((family) => line.startsWith(`${family}{`))));
}

function seeing(tenants: readonly LimitedTenant[]) {
  const { metrics } = server({
    role: 'gateway',
    tenants: { size: 1, has: () => true, badFiles: 0, certificates: () => [] },
  });
  metrics.see({ registry: { lastAnswerAt: undefined, behind: 0 }, using: () => tenants });
  return metrics;
}

test('a tenant’s use, limits and refusals are on the page, without limits that are none', async () => {
  assert.deepEqual(await limitLines(seeing([tenant('acme')])), {
    'limit{tenant="acme",limit="pendingDials"}': 100,
    'limit{tenant="acme",limit="tunnels"}': 5000,
    'limit{tenant="acme",limit="bytesQueued"}': 1e6,
    'limit{tenant="acme",limit="dialsPerSecond"}': 200,
    'use{tenant="acme",limit="pendingDials"}': 1,
    'use{tenant="acme",limit="tunnels"}': 2,
    'use{tenant="acme",limit="bytesQueued"}': 4,
    'refused_dials_total{tenant="acme",limit="dialsPerSecond"}': 3,
    'refused_dials_total{tenant="acme",limit="pendingDials"}': 0,
    'refused_dials_total{tenant="acme",limit="tunnels"}': 0,
    'refused_dials_total{tenant="acme",limit="bytesQueued"}': 0,
  });
});

test('of many tenants there are lines of 1,000', async () => {
  const many = seeing(Array.from({ length: 1200 }, (_, i) => tenant(`t${i}`)));
  const lines = Object.keys(await beginning(many, 'isthmus_tenant_use'));
  assert.equal(lines.filter((line) => line.includes('limit="tunnels"')).length, 1000);
});

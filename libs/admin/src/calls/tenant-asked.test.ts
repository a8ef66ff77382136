import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AdminBackend, QuarantinePart } from '../backend.ts';
import { asking } from '../testing/backend.ts';
import type { RoutingPart } from './explain.ts';
import { tenantAsked } from './messages.ts';

/** The tenants of a plane, with nothing known of them but their names. */
function tenantsOf(...names: string[]): NonNullable<AdminBackend['tenants']> {
  const rest = {
    file: '',
    limits: { agents: 1, sessions: 1, tunnels: 1, pendingDials: 1 },
    use: {},
    certificates: [],
    apiServerNames: [],
    state: 'a',
  };
  return {
    list: () => names.map((name) => ({ name, ...rest })),
    has: (name) => names.includes(name),
    problems: () => [],
    scraped: async () => [],
    unopened: () => [],
  };
}

test("without tenants, a request that names none is about the gateway's own", () => {
  assert.equal(tenantAsked({}), 'default');
  assert.equal(tenantAsked({ routing: { tenant: 'acme' } as RoutingPart }), 'acme');
  assert.equal(tenantAsked({}, 'anyone'), 'anyone');
});

test('with tenants, a request has to name one of them, and the refusal lists a bounded number', () => {
  const tenants = tenantsOf('globex', 'acme');
  assert.equal(tenantAsked({ tenants }, 'acme'), 'acme');
  assert.throws(() => tenantAsked({ tenants }), /name a tenant with --tenant\. Tenants: acme, globex$/);
  assert.throws(() => tenantAsked({ tenants }, 'acmee'), /there is no tenant acmee\. Tenants: acme, globex$/);
  assert.throws(() => tenantAsked({ tenants: tenantsOf() }), /No tenant is in force$/);
  const many = tenantsOf(...Array.from({ length: 1000 }, (_, n) => `t${1000 + n}`));
  assert.throws(() => tenantAsked({ tenants: many }), /Tenants: t1000, .*, t1019 and 980 more$/);
});

test('an agent whose tenant was removed is let out of quarantine all the same', async () => {
  const held = new Map([['gone', 'leaks']]);
  const quarantine: QuarantinePart = {
    async set({ tenant }, reason) {
      if (reason === undefined) held.delete(tenant);
    },
    reasonFor: ({ tenant }) => held.get(tenant),
    list: () => [],
  };
  await using client = await asking({ tenants: tenantsOf('acme'), quarantine });
  const agent = { tenant: 'gone', agentId: 'a' };
  await assert.rejects(client.admin.quarantine({ agent, reason: 'x' }), /INVALID_ARGUMENT: there is no tenant gone/);
  await client.admin.quarantine({ agent, lift: true });
  assert.equal(held.size, 0);
});

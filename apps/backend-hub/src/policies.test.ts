import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTenantFile, type Tenant, Tenants } from '@isthmus/admission';
import { deferred } from '@isthmus/runtime';
import { Policies } from './policies.ts';

function tenant(lines: string): Tenant {
  const tenants = new Tenants();
  tenants.update(new Map([['a.yaml', { read: readTenantFile(`tenant: a\n${lines}`), credentials: new Map() }]]));
  return tenants.get('a') as Tenant;
}

function link() {
  const told: unknown[] = [];
  const closed = deferred<Error>();
  return {
    told,
    end: () => closed.resolve(new Error('over')),
    sendPolicy: (rules: unknown) => void told.push(rules),
    closed: closed.promise,
  };
}

test('agents hear the rules of their tenant when they come, and each change once', async () => {
  const policies = new Policies();
  const [first, second] = [link(), link()];
  policies.add(tenant(''), first);
  assert.deepEqual(first.told, [{}]);
  const narrow = tenant('dial: {deny: [{cidr: 10.0.0.1/32}]}');
  policies.renew(narrow);
  policies.renew(tenant('dial: {deny: [{cidr: 10.0.0.1/32}]}\nlimits: {agents: 1}'));
  policies.add(narrow, second);
  const rules = { deny: [{ cidr: '10.0.0.1/32' }] };
  assert.deepEqual([first.told, second.told], [[{}, rules], [rules]]);
  first.end();
  await first.closed;
  policies.renew(tenant(''));
  assert.deepEqual([first.told.length, second.told], [2, [rules, {}]]);
});

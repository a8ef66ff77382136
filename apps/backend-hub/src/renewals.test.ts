import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { type TestContext, test } from 'node:test';
import { type AgentEvidence, type Grant, readTenantFile, type Tenant, Tenants } from '@isthmus/admission';
import { Directory, memoryRegistry } from '@isthmus/directory';
import type { Tenancy } from '@isthmus/plane';
import { until } from '@isthmus/runtime/testing';
import { LinkServer, refusedWhere, requestLink } from '@isthmus/transport';
import { NotAuthorised, noTracer, planeEvents } from '@isthmus/tunnel';
import { hub } from './hub.ts';
import { RenewalRates } from './renewal-rates.ts';

function tenantsOf(texts: Readonly<Record<string, string>>): Tenants {
  const tenants = new Tenants();
  const sources = Object.entries(texts).map(([path, text]) => {
    return [path, { read: readTenantFile(text), credentials: new Map() }] as const;
  });
  tenants.update(new Map(sources));
  return tenants;
}

function grantOf(tenant: Tenant): Grant {
  const { name } = tenant;
  const principal = { tenant: name, role: 'agent', name: 'sa', rule: `${tenant.path}: agents[0].tokens`, shared: true };
  return { tenant, principal, watch: () => () => {} } as Grant;
}

test('each tenant may renew so many sessions a second, as its file has it now', () => {
  const tenants = tenantsOf({ 'a.yaml': 'tenant: a\nlimits: {renewalsPerSecond: 2}', 'b.yaml': 'tenant: b' });
  const [a, b] = ['a', 'b'].map((name) => grantOf(tenants.get(name) as Tenant)) as [Grant, Grant];
  let now = 0;
  const rates = new RenewalRates(() => now);
  const refusal = (grant: Grant) => {
    try {
      rates.take(grant);
      return undefined;
    } catch (error) {
      return error as NotAuthorised;
    }
  };
  assert.deepEqual([refusal(a), refusal(a)], [undefined, undefined]);
  const refused = refusal(a);
  assert.ok(refused instanceof NotAuthorised);
  assert.deepEqual(
    [refused.rule, refused.principal?.tenant, refusedWhere(refused, 'agents')],
    ['a.yaml: limits.renewalsPerSecond', 'a', 'limits.renewalsPerSecond'],
  );
  for (let i = 0; i < 200; i++) assert.equal(refusal(b), undefined, 'another tenant has its own, and a default');
  assert.ok(refusal(b));
  now = 500;
  assert.deepEqual([refusal(a), refusal(a) instanceof NotAuthorised], [undefined, true]);
  now = 1000;
  assert.deepEqual(
    ['a', 'b', 'c'].map((tenant) => rates.last(tenant)),
    [3, 200, 0],
    'those that were refused do not count',
  );
});

/** A hub whose agents' tokens are `TENANT ...`. */
async function tokenHub(context: TestContext, texts: Readonly<Record<string, string>>) {
  const tenants = tenantsOf(texts);
  const verified: string[] = [];
  const agent = async ({ token = '' }: AgentEvidence) => {
    verified.push(token);
    return grantOf(tenants.get(token.split(' ')[0] as string) as Tenant);
  };
  const tenancy = { tenants, identify: { agent }, admit() {}, changed: () => () => {} } as unknown as Tenancy;
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (where, _remote, error) => void refused.push(`${where}: ${error.message}`));
  const running = await hub({
    ...{ hubId: 'h1', zone: '', plane: 'p', keepaliveTime: 60_000, tenancy, changed() {} },
    ...{ advertiseAddress: '', advertiseAgentAddress: '', observation: { events, tracer: noTracer } },
    registry: memoryRegistry(),
    directory: new Directory(),
    agents: { address: { host: '127.0.0.1', port: 0 } },
    limits: { sessions: 100, identifiers: 256, identifierBytes: 8192, waiting: 100, waitingOfSource: 100 },
  });
  context.after(() => running.close());
  const session = async (tenant: string, agentId: string) => {
    const socket = net.connect(Number(running.agentAddress.split(':').at(-1)), '127.0.0.1');
    await once(socket, 'connect');
    const { renewal } = await requestLink(
      socket,
      'hub',
      { agentId, identifiers: '', version: '1', token: `${tenant} first` },
      60_000,
    );
    const done = { renewed: 0 };
    const link = new LinkServer({
      ...{ socket, peer: 'hub h1', role: 'agent' as const, events: planeEvents() },
      dial: () => Promise.reject(new Error('no dial was expected')),
      renewed: () => void done.renewed++,
    });
    context.after(() => link.destroy(new Error('the test is over')));
    assert.equal(renewal, true);
    return { renew: () => link.sendCredential(`${tenant} fresh`), done };
  };
  return { session, verified, refused };
}

test('sessions of a tenant that all renew at once keep none of another from it', {
  timeout: 60_000,
}, async (context) => {
  const texts = { 'a.yaml': 'tenant: a\nlimits: {renewalsPerSecond: 1}', 'b.yaml': 'tenant: b' };
  const { session, verified, refused } = await tokenHub(context, texts);
  const many = await Promise.all(Array.from({ length: 20 }, (_, i) => session('a', `a${i}`)));
  const other = await session('b', 'b0');
  for (const { renew } of many) renew();
  other.renew();
  const done = () => many.filter((each) => each.done.renewed > 0).length;
  await until(() => other.done.renewed === 1 && done() + refused.length === many.length);
  assert.ok(done() >= 1 && refused.length > 0, `${done()} renewed`);
  assert.equal(
    verified.filter((token) => token === 'a fresh').length,
    done(),
    'a token beyond the limit is not verified',
  );
  assert.equal(
    refused[0],
    'limits.renewalsPerSecond: tenant a has reached its limit renewalsPerSecond of 1: send the token again later (a.yaml: limits.renewalsPerSecond)',
  );
});

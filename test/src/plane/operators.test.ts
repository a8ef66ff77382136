import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import test from 'node:test';
import { adminClient } from '@isthmus/admin/testing/client';
import { Authority } from '@isthmus/certificates/testing';
import type { Registry } from '@isthmus/directory';
import { redisRegistry } from '@isthmus/directory/redis';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { VERSION } from '@isthmus/service';
import {
  type Back,
  DEADLINE_MS,
  echo,
  type Front,
  type Program,
  Scope,
  split,
  tempDir,
  until,
} from '../harness/index.ts';
import { carries, dial } from './dials.ts';
import { asked } from './operator.ts';

function adminAddresses(fronts: readonly Front[], backs: readonly Back[]): string[] {
  return [...fronts, ...backs].map(({ program }) => `127.0.0.1:${program.adminPort}`).sort();
}

async function listed(registry: Registry): Promise<string[]> {
  return (await registry.members()).map(({ adminAddress }) => adminAddress).sort();
}

/** Waits until a gateway answers a dial as wanted. */
async function answers(scope: Scope, gateway: Front, destination: string, wanted: RegExp): Promise<void> {
  const asIs = async () => {
    const text = await dial(scope, gateway, 'connect', destination).then(
      (tunnel) => {
        tunnel.destroy();
        return 'established';
      },
      (error: Error) => error.message,
    );
    return wanted.test(text);
  };
  await until(asIs, { what: `a dial that ends with ${wanted}` });
}

test('an operator can find every process in the registry and take an agent out of use', {
  skip: redisMissing(),
}, async (t) => {
  await using scope = new Scope();
  const operators = await Authority.create(await tempDir(scope), 'operators');
  const { cert, key } = await operators.server();
  const hubFlags = { 'admin-server-cert': cert, 'admin-server-key': key, 'admin-ca-cert': operators.cert };
  const { gateways, hubs, redis } = await split(scope, { hubs: 1, hubFlags });
  const registry = redisRegistry({ url: redis.url, plane: 'test' });
  scope.defer(() => registry.close());
  const [gateway] = gateways as [Front];
  const { authority } = await echo(scope);

  await t.test('each process registers what it is and its admin port, and removes itself when it stops', async () => {
    const wanted = adminAddresses(gateways, hubs).join();
    await until(async () => (await listed(registry)).join() === wanted, { what: 'all members' });
    const members = await registry.members();
    assert.deepEqual(members.map(({ roles }) => roles.join()).sort(), ['gateway', 'gateway', 'hub']);
    for (const { memberId, roles, host, version } of members) {
      assert.deepEqual([host, version], [hostname(), VERSION]);
      if (roles[0] === 'gateway') assert.ok(memberId.startsWith(`${host}-`), memberId);
    }
    const { program: leaves } = gateways.at(-1) as { program: Program };
    leaves.signal('SIGTERM');
    await leaves.ended();
    assert.deepEqual(await listed(registry), adminAddresses([gateway], hubs));
  });

  await t.test('an admin port with certificates answers only clients that show one', async () => {
    const address = `127.0.0.1:${hubs[0]?.program.adminPort}`;
    const { cert, key } = await operators.client('operator');
    const tls = { ca: readFileSync(operators.cert), cert: readFileSync(cert), key: readFileSync(key) };
    using operator = adminClient(address, tls);
    // A gateway's end may have moved its agent.
    const isThere = async () => (await operator.admin.listSessions({})).sessions.length === 1;
    await until(isThere, { what: 'the session of the one agent' });
    using stranger = adminClient(address, { ca: tls.ca });
    await assert.rejects(stranger.admin.listSessions({}, { signal: AbortSignal.timeout(DEADLINE_MS) }));
    using plain = adminClient(address);
    await assert.rejects(plain.admin.listSessions({}, { signal: AbortSignal.timeout(DEADLINE_MS) }));
  });

  await t.test('an agent in quarantine gets no dials, and its tunnels go on', async () => {
    const tunnel = await dial(scope, gateway, 'mtls', authority);
    const agent = { tenant: 'default', agentId: 'agent-0' };
    assert.equal(await registry.quarantine(agent, 'its disk fails'), true);
    await answers(scope, gateway, authority, /503 .*No agent available: agent-0 is in quarantine/);
    await carries(tunnel);
    assert.equal(await registry.quarantine(agent, undefined), true);
    await answers(scope, gateway, authority, /^established$/);
  });
});

test('a gateway that is killed is missed, and one that is stopped is not', {
  skip: redisMissing(),
}, async () => {
  await using scope = new Scope();
  const { gateways, redis } = await split(scope, { gateways: 3, hubs: 1 });
  const [left, killed, stopped] = gateways as [Front, Front, Front];
  const registry = redisRegistry({ url: redis.url, plane: 'test' });
  scope.defer(() => registry.close());
  await until(async () => (await listed(registry)).length === 4, { what: 'all members' });
  const members = await registry.members();
  const idOf = ({ program }: Front) =>
    members.find(({ adminAddress }) => adminAddress === `127.0.0.1:${program.adminPort}`)?.memberId;
  const missed = async () => {
    type Attention = { attention: { check: string; about: string; detail: string }[] };
    const { attention } = await asked<Attention>(left.program, 'status');
    return attention.filter(({ check }) => check === 'missing');
  };
  stopped.program.signal('SIGTERM');
  await stopped.program.ended();
  await killed.program.kill();
  await until(async () => (await missed()).length > 0, { what: 'the killed gateway to be missed' });
  const [{ about, detail } = { about: '', detail: '' }, ...others] = await missed();
  assert.deepEqual([about, others], [idOf(killed), []]);
  assert.match(detail, /^gateway with its admin port at 127\.0\.0\.1:\d+, was lost .*: silent for \d+ s$/);
});

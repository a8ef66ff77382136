import assert from 'node:assert/strict';
import test from 'node:test';
import { Authority } from '@isthmus/certificates/testing';
import {
  PLANE_USER,
  type RedisServer,
  redisMissing,
  startRedis,
  startSentinels,
} from '@isthmus/directory/testing/servers';
import {
  type Back,
  echo,
  type Front,
  type Program,
  peerFlags,
  Scope,
  split,
  startAgent,
  startGateway,
  tempDir,
  until,
} from '../harness/index.ts';
import { adminOf, carries, Dialler, dial } from './dials.ts';

const skip = redisMissing();

async function agentsKnownTo(scope: Scope, program: Program): Promise<Set<string>> {
  const { sessions } = await adminOf(scope, program).listSessions({});
  return new Set(sessions.map(({ agentId }) => agentId));
}

/** Dials through each gateway during an action, and a few times afterwards. No dial may fail. */
async function undisturbed(scope: Scope, gateways: readonly Front[], happens: () => Promise<void>): Promise<void> {
  const { authority } = await echo(scope);
  const diallers = gateways.map((gateway) => new Dialler(scope, gateway, 'connect', authority));
  await happens();
  const before = diallers.map(({ dials }) => dials);
  const enough = () => diallers.every(({ dials }, index) => dials >= (before[index] as number) + 10);
  await until(enough, { what: 'ten more dials of each caller' });
  await Promise.all(diallers.map((dialler) => dialler.stop()));
  const failures = diallers.flatMap((dialler) => dialler.failures.map(({ message }) => message));
  assert.deepEqual(failures, []);
}

test('with TLS and a restricted user, Sentinels promote a replica while dials go on', { skip }, async () => {
  await using scope = new Scope();
  const authority = await Authority.create(await tempDir(scope), 'redis');
  // Redis servers connect to each other as clients.
  const tls = { ...(await authority.server({ uses: ['server', 'client'] })), ca: authority.cert };
  const sentinels = await startSentinels({ tls, password: 'word' });
  scope.defer(() => sentinels.stop());
  const { cert, key } = await authority.client('isthmus');
  const files = { 'redis-ca-cert': authority.cert, 'redis-cert': cert, 'redis-key': key };
  const flags = { 'redis-url': sentinels.url, ...files };
  const { gateways, hubs, trust } = await split(scope, { gatewayFlags: flags, hubFlags: flags });
  await undisturbed(scope, gateways, async () => {
    const failed = await sentinels.inCharge('any');
    await failed?.kill();
    const other = async () => ![undefined, failed].includes(await sentinels.inCharge('any'));
    await until(other, { what: 'a replica that became the primary' });
  });
  await startAgent(scope, trust, (hubs[0] as Back).agentPort, { 'agent-id': 'late' });
  for (const { program } of gateways) {
    const knows = async () => (await agentsKnownTo(scope, program)).has('late');
    await until(knows, { what: 'the agent that came after the failover' });
  }
  for (const { lines } of [...gateways, ...hubs].map(({ program }) => program)) {
    assert.ok(!lines.some((line) => line.includes(PLANE_USER.password) || line.includes('word@')));
  }
});

test('a hub that the registry has lost goes on serving over its link, until the link ends', { skip }, async () => {
  await using scope = new Scope();
  const redis: RedisServer = await startRedis({ args: ['--user', 'hub', 'on', '>secret', '~*', '+@all'] });
  scope.defer(() => redis.stop());
  const hubFlags = { 'redis-url': redis.url.replace('//', '//hub:secret@') };
  const plane = await split(scope, { hubs: 1, gatewayFlags: { 'redis-url': redis.url }, hubFlags });
  const [{ program: gateway }] = plane.gateways as [Front];
  const [{ program: hub }] = plane.hubs as [Back];
  await undisturbed(scope, plane.gateways, async () => {
    await redis.command('ACL SETUSER hub -@all');
    const removed = async () => (await redis.command('HLEN {test}:hubs')) === ':0';
    await until(removed, { what: 'the end of the hub in the registry' });
  });
  await until(async () => (await agentsKnownTo(scope, gateway)).has('agent-0'), { what: 'the agent at the gateway' });
  const { status, body } = await gateway.get('/readyz?verbose');
  assert.equal(status, 200, body);
  await hub.kill();
  const forgotten = async () => (await agentsKnownTo(scope, gateway)).size === 0;
  await until(forgotten, { what: 'the end of the session of the hub that was killed' });
});

test('a gateway that starts while Redis takes no writes serves the hubs that Redis holds', { skip }, async () => {
  await using scope = new Scope();
  const { redis, trust } = await split(scope, { hubs: 1, gateways: 1 });
  await redis.command('CONFIG SET min-replicas-to-write 1');
  const expired = async () => /^:0/.test(await redis.command("EVAL \"return #redis.call('KEYS','{test}:hub:*')\" 0"));
  await until(expired, { what: "the end of the hub's record" });
  const flags = { 'redis-url': redis.url, plane: 'test', ...(await peerFlags(trust, ['gateway'])) };
  const gateway = await startGateway(scope, trust, flags);
  await gateway.program.waitReady();
  const { authority } = await echo(scope);
  await carries(await dial(scope, gateway, 'connect', authority));
});

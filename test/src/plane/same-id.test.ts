import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  eventually,
  gatewayMember,
  hubMember,
  newTrust,
  type Program,
  peerFlags,
  type Scope,
  scoped,
} from '../harness/index.ts';
import { isthmus } from './operator.ts';

async function plane(scope: Scope) {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  return { trust, redis, flags: { 'redis-url': redis.url, plane: 'test' } };
}

const said = (program: Program, what: string) => program.waitForLog(({ msg }) => msg === what, { what });

describe('a plane in trouble', { skip: redisMissing(), concurrency: true }, () => {
  it(
    'reports two processes with one --server-id, and the older one returns when the newer one ends',
    scoped(async (scope) => {
      const { trust, flags } = await plane(scope);
      const own = { ...flags, 'server-id': 'twin' };
      const older = await hubMember(scope, trust, 'older', { flags: own });
      await older.member.program.waitReady();
      const agent = await agentMember(scope, trust, 'agent', older.agentPort, {});
      await agent.program.waitReady();
      const newer = await hubMember(scope, trust, 'newer', { flags: own });
      const both = [older.member.program, newer.member.program] as const;
      await Promise.all(both.map((program) => said(program, 'two processes share one --server-id')));
      for (const program of both) {
        const { out } = await isthmus(program, 'status');
        assert.match(out, /\nTo fix:\n {2}twin: another process uses --server-id twin: on .* Give each/);
      }
      const { out, status } = await isthmus(both[0], 'status');
      assert.match(out, /twin: registration: another process was started under --server-id twin/);
      assert.equal(status, 1);
      // The newer one has no agent: until all members have answered, that is not sure.
      await eventually(async () => assert.equal((await isthmus(both[1], 'status')).status, 4));
      newer.member.program.signal('SIGTERM');
      await newer.member.program.ended();
      await said(both[0], 'no other process uses this --server-id any more');
      await eventually(async () => assert.equal((await both[0].get('/readyz')).status, 200));
      await eventually(async () => assert.equal((await older.member.sessions()).length, 1));
      assert.doesNotMatch((await isthmus(both[0], 'status')).out, /server-id/);
    }),
  );

  it(
    'shows its members while Redis is down',
    scoped(async (scope) => {
      const { trust, redis, flags } = await plane(scope);
      const gateway = await gatewayMember(scope, trust, 'gateway', {
        flags: { ...flags, ...(await peerFlags(trust)), 'server-id': 'gateway' },
      });
      const hub = await hubMember(scope, trust, 'hub', { flags: { ...flags, 'server-id': 'hub' } });
      await hub.member.program.waitReady();
      const { program } = gateway.member;
      await eventually(async () => assert.match((await isthmus(program, 'status')).out, /^hub +hub +yes /m));
      await redis.kill();
      await said(program, 'registry is down');
      await eventually(async () => {
        const { out } = await isthmus(program, 'status');
        assert.match(out, /the registry: cannot get members that joined or left since its last answer \(redis /);
        for (const id of ['gateway', 'hub']) assert.match(out, new RegExp(`^${id} +${id} `, 'm'));
        assert.doesNotMatch(out, /maxRetries|Refer to/);
      });
    }),
  );
});

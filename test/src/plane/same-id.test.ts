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
    'a hub that starts takes over the record of its id, and the one that had it says by whom and where, and ends',
    scoped(async (scope) => {
      const { trust, flags } = await plane(scope);
      const own = { ...flags, 'server-id': 'twin' };
      const older = await hubMember(scope, trust, 'older', { flags: own });
      await older.member.program.waitReady();
      const agent = await agentMember(scope, trust, 'agent', older.agentPort, {});
      await agent.program.waitReady();
      const newer = await hubMember(scope, trust, 'newer', { flags: own });
      const { text } = await older.member.program.waitForLog(
        ({ msg, text }) => msg === 'stopping' && text !== undefined,
        {
          what: 'why it stops',
        },
      );
      const places = `gateways reach it at \\S+, agents reach it at 127\\.0\\.0\\.1:${newer.agentPort}`;
      assert.match(
        String(text),
        new RegExp(`^another process has taken the record of --server-id twin: .*, ${places}\\. `),
      );
      assert.equal((await older.member.program.ended()).code, 1);
      await eventually(async () => assert.equal((await newer.member.sessions()).length, 1));
      assert.equal((await newer.member.program.get('/readyz')).status, 200);
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
        assert.match(out, /Redis: cannot get members that joined or left since its last answer \(redis /);
        for (const id of ['gateway', 'hub']) assert.match(out, new RegExp(`^${id} +${id} `, 'm'));
        assert.doesNotMatch(out, /maxRetries|Refer to/);
      });
    }),
  );
});

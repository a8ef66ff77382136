import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  eventually,
  type Flags,
  newTrust,
  type Program,
  peerFlags,
  type Scope,
  scoped,
  startAgent,
  startGateway,
  startHub,
} from '../harness/index.ts';
import { asked } from './operator.ts';

/** A line of an answer. */
interface Line {
  readonly member: { readonly id: string; readonly roles: readonly string[] };
  readonly answer?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: string; readonly message: string };
}

/** Asks one program's admin port for others. */
async function ask({ adminPort }: Program, question: object): Promise<Line[]> {
  const response = await fetch(`http://127.0.0.1:${adminPort}/ask`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Line).sort((a, b) => (a.member.id < b.member.id ? -1 : 1));
}

/** Two gateways, two hubs and an agent. No program but the one that is asked needs an admin port that the operator reaches. */
async function split(scope: Scope) {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane: Flags = { 'redis-url': redis.url, plane: 'test' };
  const hubs = await Promise.all(['hub-1', 'hub-2'].map((id) => startHub(scope, trust, { ...plane, 'server-id': id })));
  const gateways = await Promise.all(
    ['gateway-1', 'gateway-2'].map(async (id) =>
      startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)), 'server-id': id }),
    ),
  );
  const agent = await startAgent(scope, trust, hubs[0]?.agentPort as number, { 'agent-id': 'agent-1' });
  await Promise.all([...gateways.map(({ program }) => program.waitReady()), agent.waitReady()]);
  return { redis, hubs, gateways, agent };
}

const PATIENT = { timeoutMs: 20_000 };

/** Waits until a member has the answers of all, for the first time or again: on a busy machine, a link may be lost for a moment. */
async function answersForAll(program: Program): Promise<void> {
  const all = ['gateway-1', 'gateway-2', 'hub-1', 'hub-2'];
  await eventually(async () => {
    const lines = await ask(program, { method: 'GetStatus', ...PATIENT });
    assert.deepEqual(
      lines.map(({ member, answer }) => [member.id, answer?.memberId]),
      all.map((id) => [id, id]),
      JSON.stringify(lines),
    );
  });
}

describe('one member answers for all', { skip: redisMissing() }, () => {
  it(
    'a gateway or hub asks hubs, gateways through hubs, hubs through gateways, and agents through their hubs',
    scoped(async (scope) => {
      const { hubs, gateways, agent, redis } = await split(scope);
      for (const { program } of [...gateways, ...hubs]) {
        await answersForAll(program);
        // A hub hears of sessions of other hubs from the registry.
        await eventually(async () => {
          const [own] = await ask(program, { method: 'GetStatus', agent: { id: 'agent-1' }, ...PATIENT });
          assert.deepEqual([own?.member.id, own?.answer?.agentId], ['agent-1', 'agent-1'], JSON.stringify(own));
        });
      }
      const [gateway] = gateways;
      assert.ok(gateway);
      const { program } = gateway;
      await eventually(async () => {
        const some = await ask(program, { method: 'ListSessions', roles: ['hub'], ...PATIENT });
        assert.deepEqual(
          some.map(({ member }) => member.id),
          ['hub-1', 'hub-2'],
        );
      });
      const [refusal] = await ask(program, { method: 'Drain', agent: { id: 'agent-1' }, ...PATIENT });
      assert.equal(refusal?.error?.code, 'permission_denied');
      const [nobody] = await ask(program, { method: 'GetStatus', agent: { id: 'agent-9' }, ...PATIENT });
      assert.match(nobody?.error?.message ?? '', /^gateway-1 has no link to agent agent-9 of tenant default$/);
      const [unknown] = await ask(program, { method: 'GetStatus', members: ['hub-9'], ...PATIENT });
      assert.match(unknown?.error?.message ?? '', /has no link to hub-9$/);

      interface AgentView {
        readonly itself?: { readonly servers: readonly { readonly serverId: string }[] };
      }
      // The agent is ready with its first session; it hears of the other hub later.
      await eventually(async () => {
        const { itself } = await asked<AgentView>(program, 'agents', 'agent-1');
        assert.deepEqual(itself?.servers.map(({ serverId }) => serverId).sort(), ['hub-1', 'hub-2']);
      });

      await redis.kill();
      await answersForAll(program);

      agent.signal('SIGSTOP');
      const [hung] = await ask(program, { method: 'GetStatus', agent: { id: 'agent-1' }, timeoutMs: 300 });
      assert.match(hung?.error?.message ?? '', /^no answer within 0.3 s: it hangs, or the network drops packets$/);
      agent.signal('SIGCONT');
    }),
  );

  it(
    'a hub that hangs is named, and the others answer, also those that it has a link to',
    scoped(async (scope) => {
      const { hubs, gateways } = await split(scope);
      const [gateway] = gateways;
      assert.ok(gateway && hubs[1]);
      await answersForAll(gateway.program);
      hubs[1].program.signal('SIGSTOP');
      scope.defer(() => void hubs[1]?.program.signal('SIGCONT'));
      // The link to the hub ends long before this.
      const lines = await ask(gateway.program, { method: 'GetStatus', ...PATIENT });
      const of = new Map(lines.map((line) => [line.member.id, line]));
      assert.match(of.get('hub-2')?.error?.message ?? '', /has no link|link has ended|hub hub-2/);
      assert.deepEqual(
        [of.get('hub-1')?.answer?.memberId, of.get('gateway-2')?.answer?.memberId],
        ['hub-1', 'gateway-2'],
      );
    }),
  );
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory } from '@isthmus/directory';
import { quarantineIn } from '../backend.ts';
import { aSession, asking } from '../testing/backend.ts';
import type { RoutingPart } from './explain.ts';

/** A quarantine in memory, for one process. */
function kept() {
  const directory = new Directory();
  let version = 0;
  const part = quarantineIn(
    {
      async quarantine(agent, reason) {
        const said = { ...agent, version: ++version, ...(reason !== undefined && { reason }) };
        directory.apply({ kind: 'quarantine', quarantine: said });
      },
    },
    directory,
  );
  return part;
}

test('an agent enters and leaves quarantine, and its sessions show it', async () => {
  const sessions = () => [aSession('s1'), aSession('s2', { agentId: 'b' })];
  await using client = await asking({ quarantine: kept(), sessions });
  const { admin } = client;
  assert.deepEqual(await admin.quarantine({ agent: { agentId: 'a' }, reason: 'loses packets' }), {
    sessions: 1,
    tunnels: 0,
    tenant: 'default',
    known: true,
  });
  const agents = [{ tenant: 'default', agentId: 'a', reason: 'loses packets' }];
  assert.deepEqual(await admin.listQuarantined({}), { agents });
  const listed = (await admin.listSessions({})).sessions;
  assert.deepEqual(
    listed.map(({ agentId, quarantined, quarantineReason }) => [agentId, quarantined, quarantineReason]),
    [
      ['a', true, 'loses packets'],
      ['b', false, ''],
    ],
  );
  await admin.quarantine({ agent: { agentId: 'a' }, lift: true });
  assert.deepEqual(await admin.listQuarantined({}), { agents: [] });
});

test('an agent with a credential of its own is quarantined by the name in it, whatever id it claims', async () => {
  const sessions = () => [
    aSession('s1', { agentId: 'a-1', credential: 'a' }),
    aSession('s2', { agentId: 'a-2', credential: 'a' }),
    aSession('s3', { agentId: 'b' }),
  ];
  await using client = await asking({ quarantine: kept(), sessions });
  const { admin } = client;
  const { sessions: affected } = await admin.quarantine({ agent: { agentId: 'a-1' }, reason: 'leaks' });
  assert.equal(affected, 2);
  const { agents } = await admin.listQuarantined({});
  assert.deepEqual(agents, [{ tenant: 'default', agentId: 'a', reason: 'leaks' }]);
  const listed = (await admin.listSessions({})).sessions;
  assert.deepEqual(
    listed.map(({ quarantined }) => quarantined),
    [true, true, false],
  );
  await admin.quarantine({ agent: { agentId: 'a-2' }, lift: true });
  assert.deepEqual(await admin.listQuarantined({}), { agents: [] });
});

test('an invalid quarantine is rejected with what to do', async () => {
  const failing = (error: Error) => ({ ...kept(), set: () => Promise.reject(error) });
  const refusal = async (given: Parameters<typeof asking>[0], request = { agent: { agentId: 'a' }, reason: 'x' }) => {
    await using client = await asking(given);
    const asked = client.admin.quarantine(request);
    return await asked.then(
      () => 'taken',
      ({ message }: Error) => message,
    );
  };
  const named = (name: string, message: string) => ({
    quarantine: failing(Object.assign(new Error(message), { name })),
  });
  assert.match(await refusal({}), /UNIMPLEMENTED: .* ask a gateway or hub of its plane/);
  const quarantine = kept();
  assert.match(
    await refusal({ quarantine }, { agent: { agentId: '' }, reason: 'x' }),
    /INVALID_ARGUMENT: agent.agent_id/,
  );
  assert.match(
    await refusal({ quarantine }, { agent: { agentId: 'a' }, reason: '' }),
    /INVALID_ARGUMENT: reason is empty/,
  );
  assert.match(
    await refusal(named('RegistryUnavailable', 'no answer')),
    /UNAVAILABLE: no answer: the change may have been stored anyway; .* repeating the request is safe/,
  );
  assert.match(await refusal(named('QuarantineFull', 'no room')), /RESOURCE_EXHAUSTED: no room/);
  assert.match(await refusal(named('RangeError', 'too long')), /INVALID_ARGUMENT: too long/);
});

test("without a tenant the agent is one of the gateway's, and the answer says if the agent is unknown", async () => {
  const routing = { tenant: 'acme' } as RoutingPart;
  const sessions = () => [aSession('s1', { tenant: 'acme' })];
  await using client = await asking({ quarantine: kept(), sessions, routing });
  const { admin } = client;
  const known = async (agentId: string, lift = false) => {
    const answer = await admin.quarantine({ agent: { agentId }, ...(lift ? { lift } : { reason: 'x' }) });
    return [answer.tenant, answer.known];
  };
  assert.deepEqual(await known('a'), ['acme', true]);
  assert.deepEqual(await known('typo'), ['acme', false]);
  assert.deepEqual(await known('typo', true), ['acme', true], 'one that is away and was in quarantine');
  assert.deepEqual(await known('typo', true), ['acme', false]);
});

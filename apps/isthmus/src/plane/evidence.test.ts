import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judge } from '@isthmus/findings';
import { aSession, aStatus, aWitness } from '@isthmus/findings/testing';
import { adminApi } from '@isthmus/proto/admin';
import { withClocks } from './evidence.ts';
import type { Plane } from './plane.ts';

test('what agents say of the time is a claim, which outvotes no member', async () => {
  const late = aStatus({ nowMs: Date.now() + 90_000 });
  const plane = { askAgent: async () => late } as unknown as Plane;
  const sessions = ['a', 'b', 'c', 'd'].map((agentId) =>
    aSession({ agentId, protocol: adminApi.LinkProtocol.LINK_PROTOCOL_LINK }),
  );
  const members = ['h1', 'h2'].map((id) => aWitness(id, { aheadMs: 0 }));
  const evidence = { members, hubs: [], sessions, clocks: [{ of: 'this machine', aheadMs: 0 }], now: Date.now() };
  const found = judge(await withClocks(plane, evidence, 10_000, 0), ['clocks']);
  assert.deepEqual(
    found.map(({ outcome, about }) => `${outcome} ${about}`).sort(),
    ['a', 'b', 'c', 'd'].map((id) => `fail agent ${id}`),
  );
});

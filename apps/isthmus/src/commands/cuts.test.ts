import assert from 'node:assert/strict';
import { test } from 'node:test';
import { styleOf } from '../output.ts';
import type { Member } from '../plane/member.ts';
import { cutsOf, cutsText } from './cuts.ts';

const NOW = Date.UTC(2026, 10, 26, 12);

function cut(minutesAgo: number, by: string, agentId: string, reason: string) {
  return {
    atMs: BigInt(NOW - minutesAgo * 60_000),
    ...{ by, agentId, reason, tenant: 'default', destination: '10.0.0.5:10250', caller: 'uds', hubId: 'hub-1' },
    ...{ dialId: `d${minutesAgo}`, ageMs: 65_000n, bytesUp: 1n, bytesDown: 2n, traceId: 'ab' },
  };
}

const member = { id: 'gw-1' } as Member;
const gone = 'agent agent-7 has closed all its connections';
const value = {
  cuts: [
    cut(1, 'agent', 'agent-7', gone),
    cut(2, 'agent', 'agent-7', gone),
    cut(3, 'operator', 'agent-1', 'ended by an operator'),
    cut(50, 'gateway', 'agent-1', 'the gateway stops'),
  ],
  cutsForgotten: 2n,
};

test('cuts of one cause are one group, and older ones than --since are left out', () => {
  const view = cutsOf([{ member, value }], { since: 600_000, limit: 1 }, NOW);
  assert.deepEqual(
    view.groups.map(({ by, what, tunnels }) => [by, what, tunnels]),
    [
      ['agent', 'agent agent-7', 2],
      ['operator', 'gw-1', 1],
    ],
  );
  assert.deepEqual([view.cuts.map(({ dial }) => dial), view.total], [['d1'], 3]);
  const text = cutsText(view, styleOf(false));
  assert.match(text, /agent agent-7 +2 +agent agent-7 has closed all its connections/);
  assert.match(text, /1 cut tunnel of 3 \(--limit shows more\)\n2 more tunnels of the last hour are not kept/);
});

test('a plane that cut nothing says so', () => {
  const view = cutsOf([{ member, value: { cuts: [], cutsForgotten: 0n } }], { since: 600_000, limit: 1 }, NOW);
  assert.equal(cutsText(view, styleOf(false)), 'No tunnel was cut.\n');
});

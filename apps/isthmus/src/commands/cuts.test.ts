import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Call } from '../command.ts';
import { list, rowsTable } from '../lists.ts';
import { type Format, Output, styleOf } from '../output.ts';
import type { Member } from '../plane/member.ts';
import { TestTerminal } from '../testing/test-terminal.ts';
import { CUTS, cutsOf } from './cuts.ts';

const NOW = Date.UTC(2026, 10, 26, 12);

function cut(minutesAgo: number, by: string, agentId: string, reason: string) {
  return {
    atMs: NOW - minutesAgo * 60_000,
    ...{ by, agentId, reason, tenant: 'default', destination: '10.0.0.5:10250', caller: 'uds', hubId: 'hub-1' },
    ...{ dialId: `d${minutesAgo}`, ageMs: 65_000, bytesUp: 1, bytesDown: 2, traceId: 'ab' },
    ...{ hold: '', gateway: '' },
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
  cutsForgotten: 2,
  nowMs: NOW,
};

test('cuts of one cause are one group, and older ones than --since are left out', () => {
  const { items, more, text: textOf } = cutsOf([{ member, value }], 600_000);
  const groups = [
    ['agent', 'agent agent-7', 2],
    ['operator', 'gw-1', 1],
  ];
  const further = more?.(items) ?? assert.fail();
  assert.deepEqual(
    further.groups.map(({ by, what, tunnels }) => [by, what, tunnels]),
    groups,
  );
  assert.equal(further.forgotten, 2);
  assert.deepEqual(
    items.map(({ dial }) => dial),
    ['d1', 'd2', 'd3'],
  );
  const text = textOf(items.slice(0, 1), styleOf(false), { all: items, more: further, unanswered: [] });
  assert.match(text, /agent agent-7 +default +2 +- +agent agent-7 has closed all its connections/);
  assert.match(text, /1 cut tunnel of 3 \(--limit shows more\)\n2 more tunnels of the last hour are not kept/);
});

test('each line of a watched list says the reason, of which no word is lost at 80 columns', () => {
  const { items } = cutsOf([{ member, value }], 600_000);
  const text = rowsTable(CUTS.columns(items), items, styleOf(false, { columns: 80, wide: false }));
  const lines = text.split('\n');
  assert.ok(
    lines.every((line) => line.length <= 80),
    text,
  );
  const reason = text.replace(/\s+/g, ' ');
  for (const word of gone.split(' ')) assert.ok(reason.includes(word), `${word} is not in ${text}`);
});

test('what hold told is blamed on the gateway or hold that it names, and counts once beside what a gateway saw', () => {
  const told = { hold: 'n1', gateway: 'gw-2' };
  const seenThere = cut(3, 'operator', 'agent-1', 'ended by an operator');
  const cuts = [
    { ...seenThere, ...told, dialId: 'only told' },
    { ...seenThere, ...told },
    { ...cut(4, 'hold', 'agent-1', 'isthmus hold stops'), ...told },
    { ...cut(5, 'agent', 'agent-7', gone), ...told, tenant: 'acme' },
    cut(6, 'agent', 'agent-7', gone),
  ];
  const answers = [
    { member, value: { cuts, cutsForgotten: 0, nowMs: NOW } },
    {
      member: { id: 'gw-2' } as Member,
      value: { cuts: [seenThere, cuts[2] ?? seenThere], cutsForgotten: 0, nowMs: NOW },
    },
  ];
  const { items, more } = cutsOf(answers, 600_000);
  const further = more?.(items) ?? assert.fail();
  assert.deepEqual(
    further.groups.map(({ by, what, tenant, hold, tunnels }) => [by, what, tenant, hold, tunnels]),
    [
      ['operator', 'gw-2', 'default', '', 1],
      ['operator', 'gw-2', 'default', 'n1', 1],
      ['hold', 'n1', 'default', 'n1', 1],
      ['agent', 'agent agent-7', 'acme', 'n1', 1],
      ['agent', 'agent agent-7', 'default', '', 1],
    ],
  );
});

test('cuts are a list, whose groups are those of the chosen ones', async () => {
  const listed = async (output: Format, fieldSelector: string, names: readonly string[] = []) => {
    const terminal = new TestTerminal([]);
    const plane = async () => ({ ask: async () => ({ answers: [{ member, value }], unanswered: [] }) });
    const options = { since: Number.POSITIVE_INFINITY, limit: 1, fieldSelector };
    const call = { args: [names], options, terminal, plane, output: new Output(terminal, output) };
    await list(CUTS, call as unknown as Call);
    return terminal.stdout;
  };
  const { cuts, groups, ...rest } = JSON.parse(await listed('json', 'agent=agent-1'));
  assert.deepEqual([cuts.length, cuts[0].dial, groups.length], [1, 'd3', 2]);
  assert.deepEqual(rest, { total: 2, forgotten: 2, unanswered: [] });
  assert.equal(await listed('name', 'by!=agent', ['d50']), 'cut/d50\n');
});

test('a plane that cut nothing says so', () => {
  const { items, text, more } = cutsOf([{ member, value: { cuts: [], cutsForgotten: 0, nowMs: NOW } }], 600_000);
  const of = { all: items, more: more?.(items) ?? assert.fail(), unanswered: [] };
  assert.equal(text(items, styleOf(false), of), 'No tunnel was cut.\n');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import type { Call } from '../command.ts';
import { type ListOptions, list } from '../lists.ts';
import { type Format, Output } from '../output.ts';
import { TestTerminal } from '../testing/test-terminal.ts';
import { TUNNELS } from './tunnels.ts';

const tunnels = ['old', 'middle', 'young'].map((dialId, nth) => {
  return adminApi.Tunnel.fromPartial({ dialId, ageMs: 9 - nth, agentId: `agent-${nth}` });
});

/** Lists at most one tunnel. */
async function listed(output: Format, options: ListOptions, names: readonly string[] = []): Promise<string> {
  const terminal = new TestTerminal([]);
  const plane = async () => ({
    ask: async () => ({ answers: [{ member: { id: 'gw-1' }, value: { tunnels } }], unanswered: [] }),
  });
  const call = {
    args: [names],
    options: { limit: 1, ...options },
    terminal,
    plane,
    output: new Output(terminal, output),
  };
  await list(TUNNELS, call as unknown as Call<ListOptions>);
  return terminal.stdout;
}

test('names and filters choose among all tunnels, and --limit cuts what they chose', async () => {
  assert.equal(await listed('name', {}), 'tunnel/old\n');
  assert.equal(await listed('name', {}, ['young']), 'tunnel/young\n');
  assert.equal(await listed('name', { fieldSelector: 'agent=agent-1' }), 'tunnel/middle\n');
  assert.match(await listed('table', {}), /\n1 tunnel of 3 \(--limit shows more\)\n$/);
  assert.match(await listed('table', { fieldSelector: 'agent!=agent-0' }), /\n1 tunnel of 2 \(--limit shows more\)\n$/);
  assert.equal(JSON.parse(await listed('json', {})).total, 3);
});

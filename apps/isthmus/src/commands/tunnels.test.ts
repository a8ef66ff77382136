import assert from 'node:assert/strict';
import { test } from 'node:test';
import { styleOf } from '../output/style.ts';
import { tunnelsText } from './tunnels.ts';

const TUNNEL = {
  dial: '00000000000000d1',
  tenant: 'default',
  destination: '10.0.0.7:10250',
  agent: 'node-7',
  hub: 'hub-2',
  session: 's1',
  caller: 'uds',
  since: '2026-11-21T10:00:00.000Z',
  ageMs: 60_000,
  bytesUp: 1,
  bytesDown: 2,
  through: [],
};
const ATTACHED = { ...TUNNEL, resume: { attached: true, moves: 3, keptBytes: 2048 } };
const DETACHED = { ...TUNNEL, resume: { attached: false, moves: 1, keptBytes: 0 } };

/** Returns the headings and cells that follow the bytes, a line each. */
function shown(tunnels: readonly (typeof TUNNEL)[], wide: boolean): string[] {
  const style = styleOf(false, { columns: Number.POSITIVE_INFINITY, wide });
  const text = tunnelsText({ tunnels, total: tunnels.length, unanswered: [] }, style);
  const lines = text.split('\n').slice(0, tunnels.length + 1);
  return lines.map((line) => line.split(/ {2,}/).slice(9).join(' | '));
}

test('tunnels that outlive their hub say so with -o wide: state, moves, and what is kept', () => {
  assert.deepEqual(shown([ATTACHED, TUNNEL], true), ['STATE | MOVES | KEPT', 'attached | 3 | 2.0 kB', '- | - | -']);
});

test('without it, the state is shown only if a tunnel waits for another session', () => {
  assert.deepEqual(shown([ATTACHED, TUNNEL], false), ['', '', '']);
  assert.deepEqual(shown([ATTACHED, DETACHED, TUNNEL], false), ['STATE', 'attached', 'detached', '-']);
});

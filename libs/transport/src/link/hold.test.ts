import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TunnelInfo } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { HELD, heldAnswers, readHeld } from './hold.ts';

const signal = new AbortController().signal;
const QUESTION = { ...HELD, operator: { identity: '', remote: '' } };

function tunnel(number: number): TunnelInfo {
  const id = number.toString(16).padStart(16, '0');
  const dial = { id, tenant: 'default', destination: { host: 'fd00::1', port: 443 }, deadline: 0, signal };
  const at = { agentId: 'agent-1', sessionId: 's', hubId: 'gw-1' };
  const resumable = { dial, ...at, attached: false, moves: 2, kept: 1024 };
  return { role: 'gateway', dial, ...at, since: 1_700_000_000_000, up: 1, down: 2, resumable };
}

async function* answers(...all: unknown[]): AsyncIterable<unknown> {
  yield* all;
}

test('what isthmus hold answers is what a gateway reads, up to a bound', async () => {
  const many = Array.from({ length: TRANSPORT.heldTunnels + 1 }, (_, number) => tunnel(number));
  const told = await readHeld(heldAnswers('node-1', '0.1.0', () => many)(QUESTION, signal));
  assert.deepEqual([told.name, told.version, told.tunnels.length], ['node-1', '0.1.0', TRANSPORT.heldTunnels]);
  assert.deepEqual(told.tunnels[7], {
    dialId: '0000000000000007',
    destination: { host: 'fd00::1', port: 443 },
    agentId: 'agent-1',
    since: 1_700_000_000_000,
    up: 1,
    down: 2,
    attached: false,
    moves: 2,
    kept: 1024,
  });
  const none = await readHeld(heldAnswers('node-1', '0.1.0', () => [])(QUESTION, signal));
  assert.deepEqual(none, { name: 'node-1', version: '0.1.0', tunnels: [] });
});

test('each answer is a line that a gateway takes from a caller', async () => {
  const long = Array.from({ length: TRANSPORT.heldAtOnce }, (_, number) => {
    const { dial, ...rest } = tunnel(number);
    return {
      ...rest,
      agentId: 'a'.repeat(253),
      dial: { ...dial, destination: { host: 'h'.repeat(253), port: 65_535 } },
    };
  });
  for await (const answer of heldAnswers('n'.repeat(64), '0.1.0', () => long)(QUESTION, signal))
    assert.ok(JSON.stringify(answer).length < TRANSPORT.agentAnswerBytes / 2);
});

test('what cannot be read of an answer is left out, and texts are cleaned', async () => {
  const good = {
    dial: '00000000000000d1',
    destination: 'x:1',
    agent: 'a\u001b[31m',
    up: -1,
    moves: 2 ** 40,
    kept: 'much',
    attached: 1,
  };
  const said = answers(
    7,
    null,
    { tunnels: 'none' },
    {
      name: `n\n${'x'.repeat(1000)}`,
      version: 1,
      tunnels: [null, { dial: 'no id' }, { ...good, destination: 'nowhere' }, good],
    },
  );
  const { name, version, tunnels } = await readHeld(said);
  assert.deepEqual([name.includes('\n'), name.length < 400, version, tunnels.length], [false, true, '', 1]);
  const [read] = tunnels;
  assert.equal(read?.agentId.includes('\u001b'), false);
  assert.deepEqual([read?.up, read?.moves, read?.kept, read?.attached], [0, 2 ** 32 - 1, 0, false]);
});

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { SLOW_TESTS } from '../harness/index.ts';
import { bothProtocols, MIB, type Pace, rowsOf, transferAll } from './paces.ts';
import { across, type Makes } from './rig.ts';

/** Each server with the other's agent: all tunnels of an agent then share one stream and one window. */
const MIXED: readonly Makes[] = [
  { server: 'our', agent: 'Go' },
  { server: 'Go', agent: 'our' },
];

const FULL_SPEED: Pace = { name: 'full speed' };

/** More than a tunnel's share and its stream's window, 4 MiB each at most, and a burst: so that slow readers stop their senders. */
const SHORT = {
  bytes: 16 * MIB,
  deadline: 60_000,
  paces: [FULL_SPEED, { name: '4 MiB/s', rate: 4 * MIB }, { name: 'bursts', burst: { bytes: 4 * MIB, restMs: 1_000 } }],
};

/** The full size, for slow runs. At 1 MiB/s it takes four and a half minutes. */
const WHOLE = {
  bytes: 256 * MIB,
  deadline: 540_000,
  paces: [
    FULL_SPEED,
    { name: '16 MiB/s', rate: 16 * MIB },
    { name: '1 MiB/s', rate: MIB },
    { name: 'bursts with rests of 3 s', burst: { bytes: 16 * MIB, restMs: 3_000 } },
  ],
};

const { paces, ...size } = SLOW_TESTS ? WHOLE : SHORT;

describe('mixed pairs', { concurrency: SLOW_TESTS }, () => {
  across(MIXED, 'every byte arrives, at whatever pace it is read', async (scope, rig) => {
    const rows = rowsOf(bothProtocols((await rig()).server), paces);
    // Also run each pace with an agent of its own: next to a slow reader, no reader is fast.
    for (const pace of SLOW_TESTS ? paces : []) rows.push(...rowsOf(bothProtocols((await rig()).server), [pace]));
    const transfers = await transferAll(scope, rows, size);
    const wrong = transfers.filter(({ arrived, sent, error }) => error !== undefined || arrived !== sent);
    assert.deepEqual(wrong, [], `${wrong.length} of ${transfers.length} lost bytes`);
  });
});

import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Established } from '../dial.ts';
import { behind, endOf, joined, request } from '../testing/index.ts';
import type { Tunnel } from '../tunnel.ts';
import { DialLimiter } from './dial-limiter.ts';
import { takeTurns } from './in-turns.ts';
import { UNLIMITED } from './limits.ts';
import type { DialLimits } from './table.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

const LIMITS: DialLimits = { ...UNLIMITED, pendingDials: 100, tunnels: 300, bytesQueued: 4 * MIB };

/** What a tunnel may hold beyond `bytesQueued`: one read of its source past the limit, and one that waits in the source, each way. */
const A_TUNNEL = 4 * 64 * KIB;
/** What a dial that waits may hold. */
const A_DIAL = 10 * KIB;
/** What the process itself may grow by. */
const NOISE = 16 * MIB;
const BOUND = LIMITS.bytesQueued + LIMITS.tunnels * A_TUNNEL + LIMITS.pendingDials * A_DIAL + NOISE;

/** Pours new bytes as fast as it is read, and reads nothing. */
class Stalled extends Duplex {
  constructor() {
    super({ readableHighWaterMark: 64 * KIB, writableHighWaterMark: 64 * KIB });
    this.on('error', () => {});
  }
  override _read(): void {
    setImmediate(() => this.push(Buffer.alloc(64 * KIB)));
  }
  override _write(): void {}
}

function held(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const DENO = 'Deno' in globalThis && 'Deno collects no garbage on demand';

test('a tenant that stalls all its tunnels and floods dials holds no more than its limits say', {
  skip: DENO,
}, async () => {
  setFlagsFromString('--expose-gc');
  const gc: () => void = runInNewContext('gc');
  const tunnels: Tunnel[] = [];
  const stalls = { now: true };
  const establish = (): Established => {
    const stream = new Stalled();
    const end = endOf(stream);
    return { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
  };
  const answer = () => (stalls.now ? Promise.resolve(establish()) : new Promise<never>(() => {}));
  const limiter = new DialLimiter(() => LIMITS);
  const limited = behind([limiter.limit, takeTurns()], answer);
  const refused = new Map<string, number>();
  const open = async () => {
    try {
      const { end, meter } = await limited({ ...request, tenant: 'acme' });
      const caller = new Stalled();
      const callerEnd = endOf(caller);
      tunnels.push(joined(callerEnd, end, meter));
    } catch (error) {
      const { limit = 'none' } = error as { limit?: string };
      refused.set(limit, (refused.get(limit) ?? 0) + 1);
    }
  };
  gc();
  const before = held();
  // More tunnels than it may have, a few at a time, and then ten thousand dials that nobody answers.
  for (let i = 0; i < 1000; i++) await open();
  stalls.now = false;
  for (let i = 0; i < 10_000; i++) void open();
  for (let i = 0; i < 500; i++) await tick();
  gc();
  const growth = held() - before;
  const use = limiter.use('acme');
  assert.ok(tunnels.length <= LIMITS.tunnels, `${tunnels.length} tunnels`);
  assert.ok((use?.pendingDials ?? 0) <= LIMITS.pendingDials, `${use?.pendingDials} dials wait`);
  assert.ok((use?.bytesQueued ?? 0) <= LIMITS.bytesQueued + tunnels.length * A_TUNNEL, `${use?.bytesQueued} queued`);
  assert.ok(growth <= BOUND, `${growth / MIB} MiB of ${BOUND / MIB}`);
  assert.ok((use?.bytesQueued ?? 0) >= LIMITS.bytesQueued, 'and it did try');
  assert.ok((refused.get('bytesQueued') ?? 0) + (refused.get('tunnels') ?? 0) > 10_000, `${[...refused]}`);
  for (const tunnel of tunnels) tunnel.abort(new Error('enough'));
  await Promise.all(tunnels.map(({ done }) => done));
  assert.equal(limiter.use('acme')?.bytesQueued, 0);
});

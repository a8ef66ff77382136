import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { planeEvents } from './events.ts';
import { established, request } from './testing.ts';
import { Tunnel } from './tunnel.ts';
import { TunnelTable } from './tunnel-table.ts';

function aTunnel(events: ReturnType<typeof planeEvents>, id: string): Tunnel {
  const stream = new PassThrough();
  const caller = { stream, halfOpen: true, abort: () => void stream.destroy() };
  return new Tunnel('hub', { ...request, id }, caller, established(), events);
}

test('a tunnel is ended by the id of its dial, with the reason, and the others go on', async () => {
  const events = planeEvents();
  const tunnels = new TunnelTable(events);
  const [first, second] = [aTunnel(events, 'first'), aTunnel(events, 'second')];
  const reason = new Error('ended by an operator');
  assert.equal(tunnels.abort('none', reason), 0);
  assert.equal(tunnels.abort('first', reason), 1);
  const { closedBy, error } = await first.done;
  assert.deepEqual([closedBy, error], ['plane', reason]);
  assert.deepEqual([...tunnels], [second]);
  tunnels.abort('second', reason);
  await tunnels.idle();
});

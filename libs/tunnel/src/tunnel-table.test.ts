import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { PlaneEnded } from './errors.ts';
import { planeEvents } from './events.ts';
import { endOf, established, request } from './testing/index.ts';
import { Tunnel, TunnelTable } from './tunnel.ts';

function aTunnel(events: ReturnType<typeof planeEvents>, id: string): Tunnel {
  const stream = new PassThrough();
  const caller = endOf(stream);
  return new Tunnel('hub', { ...request, id }, caller, established(), events);
}

test('a tunnel is ended by the id of its dial, with the reason, and the others continue', async () => {
  const events = planeEvents();
  const tunnels = new TunnelTable(events);
  const [first, second] = [aTunnel(events, 'first'), aTunnel(events, 'second')];
  const reason = new Error('ended by an operator');
  assert.equal(tunnels.abort('none', reason), 0);
  assert.equal(tunnels.abort('first', reason), 1);
  const { by, error } = await first.done;
  assert.deepEqual([by, error?.message, error?.cause], ['path', 'ended by an operator', reason]);
  assert.ok(error instanceof PlaneEnded);
  assert.deepEqual([...tunnels], [second]);
  tunnels.abortEach(({ role }) => role === 'gateway', reason);
  assert.equal(tunnels.size, 1);
  tunnels.abortEach(({ role }) => role === 'hub', new PlaneEnded('ended by an operator', { by: 'operator' }));
  assert.equal((await second.done).by, 'operator');
  await tunnels.idle();
});

test('a drain ends the tunnels of its role that are idle, each once', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let now = 1000;
  t.mock.method(performance, 'now', () => now);
  const events = planeEvents();
  const tunnels = new TunnelTable(events);
  const ended: string[] = [];
  events.on('tunnel:idle', ({ dial }) => ended.push(dial.id));
  aTunnel(events, 'idle');
  using _endsIdle = tunnels.endIdle('hub', 20);
  using _others = tunnels.endIdle('gateway', 20);
  using _none = tunnels.endIdle('hub', 0);
  now += 20;
  const young = aTunnel(events, 'young');
  t.mock.timers.tick(40);
  assert.deepEqual(ended, ['idle']);
  tunnels.abort('idle', new Error('test over'));
  young.abort(new Error('test over'));
  await tunnels.idle();
});

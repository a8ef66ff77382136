import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { SharedBudget } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  AttachRefused,
  type Dial,
  DialError,
  type DialRequest,
  dialLog,
  GatewayTunnels,
  HungUp,
  SessionLost,
} from '@isthmus/tunnel';
import { established, Noted, request, unobserved } from '@isthmus/tunnel/testing';
import { route } from './route.ts';
import { Suspects } from './suspects.ts';
import { directory, hub, routing, session } from './testing/routing.ts';

const GRANT = { instance: 'f'.repeat(16), secret: 'e'.repeat(32) };
const LOST = new SessionLost('hub h1 was lost');

/** A gateway, and hubs h1 and h2 with a session each of one agent. `refusal`: how the agent answers attaches. */
async function gateway(refusal?: DialError) {
  const hubs = ['h1', 'h2'];
  const sessions = hubs.map((hubId) => session(`s of ${hubId}`, { agentId: 'a', hubId, instance: GRANT.instance }));
  const known = directory(
    hubs.map((hubId) => hub(hubId, { peerAddress: 'p' })),
    sessions,
  );
  const observation = unobserved();
  const asked: DialRequest[] = [];
  const carriers: Noted[] = [];
  const told: string[] = [];
  const through = (hubId: string): Dial => {
    return async (dial) => {
      asked.push(dial);
      const attach = dial.resume?.attach;
      if (attach) await setImmediate();
      if (attach && refusal) throw refusal;
      if (
        attach &&
        ![...known.ofAgent({ tenant: 'default', agentId: 'a' })].some(({ record }) => record.sessionId === dial.session)
      )
        throw new DialError('destination_unavailable', `no session ${dial.session}`, { retryable: true });
      const open = () => {
        const carrier = new Noted();
        carriers.push(carrier);
        return carrier;
      };
      const answer = attach ? { attached: { from: attach.received, received: 0, taken: 0 } } : { grant: GRANT };
      const end = dial.resume?.carry?.(answer, open, dial);
      assert.ok(end);
      return { ...established(), end, hubId, sessionId: dial.session ?? '' };
    };
  };
  const dials: Record<string, Dial> = { h1: through('h1'), h2: through('h2') };
  const way = (hubId: string) => dials[hubId];
  const suspects = new Suspects();
  const tunnels = new GatewayTunnels({
    timeoutMs: 15_000,
    budget: new SharedBudget(0),
    directory: known,
    suspects,
    instance: '0123456789abcdef',
    observation,
    hub: way,
    route: (to) => route({ directory: known, suspects, strategies: [], zone: '', hub: way }, to),
  });
  const { events } = observation;
  events.on('tunnel:detach', (tunnel, { message }) => told.push(`detached from ${tunnel.hubId}: ${message}`));
  events.on('tunnel:attach', ({ hubId, moves }, paused) => {
    told.push(`${paused > 0 ? 'resumed' : 'moved'} to ${hubId}, move ${moves}`);
  });
  events.on('tunnel:give-up', (_tunnel, why, { message }) => told.push(`given up: ${why}: ${message}`));
  // As a span of the gateway, which its attempts replace by their own.
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  const open = () => tunnels.resume(routing(known, dials))({ ...request, traceparent, log: dialLog() });
  const { end } = await open();
  assert.ok(end.resumable);
  const loseThrough = (carrier: Noted | undefined, reason: Error = LOST) => carrier?.user?.lost(carrier, reason);
  const lose = (reason?: Error) => void loseThrough(carriers.at(-1), reason);
  const loseAll = (reason?: Error) => {
    for (const carrier of [...carriers]) loseThrough(carrier, reason);
  };
  return { open, loseAll, tunnels, end, tunnel: end.resumable, told, asked, lose, known, traceparent };
}

test('a tunnel whose hub is lost goes on through another, in the trace of its dial', async () => {
  const { tunnel, end, told, asked, lose, tunnels, traceparent } = await gateway();
  const first = tunnel.hubId;
  const other = first === 'h1' ? 'h2' : 'h1';
  end.stream.write('hello');
  assert.deepEqual([tunnel.attached, tunnels.kept], [true, 5]);
  lose();
  assert.equal(tunnel.attached, false);
  await until(() => tunnel.attached, 'an attach');
  assert.deepEqual(told, [`detached from ${first}: ${LOST.message}`, `resumed to ${other}, move 1`]);
  assert.deepEqual([tunnel.hubId, tunnel.sessionId], [other, `s of ${other}`]);
  assert.deepEqual([asked.at(-1)?.id, asked.at(-1)?.traceparent], [request.id, traceparent]);
  end.abort(new Error('the caller went away'));
  assert.deepEqual([tunnels.kept, told.length, [...tunnels]], [0, 2, []]);
});

test('a tunnel moves before its hub goes, without a pause', async () => {
  const { tunnel, told, known } = await gateway();
  const first = tunnel.hubId;
  known.apply({ kind: 'hub', hub: hub(first, { peerAddress: 'p', draining: true }) });
  await until(() => tunnel.moves === 1, 'a move');
  assert.deepEqual(told, [`moved to ${first === 'h1' ? 'h2' : 'h1'}, move 1`]);
});

test('a tunnel that its agent does not know any more is given up at once', async () => {
  const cause = new AttachRefused('this agent has no such tunnel', { final: true });
  const { tunnels, told, lose, end } = await gateway(new DialError('connection_terminated', cause.message, { cause }));
  lose();
  await until(() => told.length === 2, 'an end');
  assert.equal(told[1], `given up: agent: ${cause.message}`);
  assert.deepEqual([end.stream.destroyed, [...tunnels]], [true, []]);
});

test('tunnels of an agent that has hung up everywhere are given up at once', async () => {
  const { tunnels, open, told, asked, loseAll, tunnel, known } = await gateway();
  while (new Set([...tunnels].map(({ sessionId }) => sessionId)).size < 2) await open();
  const { length } = asked;
  told.length = 0;
  loseAll(new HungUp('the agent has hung up'));
  await until(() => [...tunnels].length === 0, 'the end of all tunnels');
  assert.ok(asked.length <= length + 1, 'only the first tunnel cannot know that the other session is gone too');
  assert.equal(known.size, 0);
  const ends = told.filter((what) => what.startsWith('given up'));
  assert.ok(ends.length > 1);
  for (const end of ends) assert.equal(end, 'given up: agent: agent a has closed all its connections');
  assert.equal(tunnel.attached, false);
});

test('a tunnel whose agent has hung up on one hub does not try it there again', async () => {
  const { tunnel, told, asked, lose, known } = await gateway();
  const first = tunnel.sessionId;
  lose(new HungUp('the agent has hung up'));
  assert.equal(known.size, 1, 'the registry says it later');
  await until(() => tunnel.attached, 'an attach');
  assert.notEqual(tunnel.sessionId, first);
  assert.deepEqual([asked.length, told.length], [2, 2]);
});

test('a tunnel goes on through another session than the one that has failed it, if there is one', async () => {
  const { tunnel, lose, known } = await gateway();
  const first = tunnel.sessionId;
  lose();
  assert.equal(known.size, 2);
  await until(() => tunnel.attached, 'an attach');
  assert.notEqual(tunnel.sessionId, first);
});

test('a caller that goes away while its tunnel is detached is told to the agent, and counts as an end', async () => {
  const { told, lose, end, tunnels } = await gateway();
  lose();
  end.abort(new Error('the caller went away'));
  await until(() => [...tunnels].length === 0, 'an end');
  assert.equal(told[1], `given up: end: ${LOST.message}`);
});

test('when many tunnels lose their hub at once, they attach a few in each turn, and dials start meanwhile', async () => {
  const { tunnels, open, loseAll, asked } = await gateway();
  await Promise.all(Array.from({ length: 99 }, open));
  const attaches = () => asked.filter(({ resume }) => resume?.attach).length;
  loseAll();
  const counts = [attaches()];
  const dials = asked.length - attaches();
  await open();
  assert.equal(asked.length - attaches(), dials + 1);
  assert.ok(attaches() < 50, `${attaches()} attaches before the dial`);
  while (![...tunnels].every(({ attached }) => attached)) {
    await setImmediate();
    counts.push(attaches());
  }
  const most = Math.max(...counts.map((count, at) => count - (counts[at - 1] ?? 0)));
  assert.ok(most <= 4, `${most} attaches in one turn`);
  assert.equal(attaches(), 100);
});

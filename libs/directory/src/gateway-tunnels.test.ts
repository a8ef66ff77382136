import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { SharedBudget } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import {
  AttachRefused,
  type AttachRequest,
  DialError,
  type DialRequest,
  dialLog,
  type EndUser,
  GatewayTunnels,
  HungUp,
  type NextHop,
  PlaneEnded,
  SessionLost,
} from '@isthmus/tunnel';
import { behind, established, RecordingCarrier, request, unobserved } from '@isthmus/tunnel/testing';
import { route, Suspects } from './route.ts';
import { directory, hub, routing, session } from './testing/routing.ts';

const TICKET = { instance: 'f'.repeat(16), secret: 'e'.repeat(32) };
const LOST = new SessionLost('hub h1 was lost');

function onDeliverTo(carrier: RecordingCarrier, act: () => void): void {
  const deliverTo = carrier.deliverTo.bind(carrier);
  carrier.deliverTo = (half) => {
    deliverTo(half);
    act();
  };
}

/** A gateway, and hubs h1 and h2 with a session each of one agent. `refusals`: how the agent answers attaches, or the first ones of them. */
async function gateway(refusals?: DialError | DialError[], early?: (carrier: RecordingCarrier) => void) {
  const hubs = ['h1', 'h2'];
  const sessions = hubs.map((hubId) => session(`s of ${hubId}`, { agentId: 'a', hubId, instance: TICKET.instance }));
  const known = directory(
    hubs.map((hubId) => hub(hubId, { peerAddress: 'p' })),
    sessions,
  );
  const observation = unobserved();
  const dialled: DialRequest[] = [];
  const attaches: AttachRequest[] = [];
  const carriers: RecordingCarrier[] = [];
  const told: string[] = [];
  const carrier = () => {
    const opened = new RecordingCarrier();
    carriers.push(opened);
    return opened;
  };
  const through = (hubId: string): NextHop => ({
    async dial(dial) {
      dialled.push(dial);
      assert.deepEqual(dial.resumeOffer, { halfAtPeer: true, gatewayInstance: '0123456789abcdef' });
      const answer = established();
      let left = () => {};
      const whenLeft = (then: () => void) => {
        left = then;
      };
      const opened = carrier();
      onDeliverTo(opened, () => left());
      const resumption = { ticket: TICKET, carrier: opened };
      return {
        ...answer,
        end: Object.assign(answer.end, { whenLeft }),
        hubId,
        sessionId: dial.session ?? '',
        resumption,
      };
    },
    async attach({ session, claim, halfAtPeer, ...named }) {
      attaches.push({ session, claim, halfAtPeer, ...named });
      assert.deepEqual([halfAtPeer, claim.secret], [true, TICKET.secret]);
      await setImmediate();
      const refusal = Array.isArray(refusals) ? refusals.shift() : refusals;
      if (refusal) throw refusal;
      const sessions = [...known.ofAgent({ tenant: 'default', agentId: 'a' })];
      if (!sessions.some(({ record }) => record.sessionId === session))
        throw new DialError('destination_unavailable', `no session ${session}`, { retryable: true });
      const answer = { from: claim.received, received: 0, taken: 0 };
      const opened = carrier();
      onDeliverTo(opened, () => {
        early?.(opened);
        early = undefined;
      });
      return { ...established(), hubId, sessionId: session, answer, carrier: opened };
    },
  });
  const links: Record<string, NextHop> = { h1: through('h1'), h2: through('h2') };
  const dials = Object.fromEntries(Object.entries(links).map(([hubId, { dial }]) => [hubId, dial]));
  const suspects = new Suspects();
  const tunnels = new GatewayTunnels({
    timeoutMs: 15_000,
    budget: new SharedBudget(0),
    directory: known,
    suspects,
    instance: '0123456789abcdef',
    observation,
    nextHop: (hubId) => links[hubId],
    route: (to) =>
      route({ directory: known, suspects, strategies: [], zone: '', nextHop: (hubId) => links[hubId] }, to),
  });
  const { events } = observation;
  events.on('tunnel:detach', (tunnel, { message }) => told.push(`detached from ${tunnel.hubId}: ${message}`));
  events.on('tunnel:attach', ({ hubId, moves }, paused) => {
    told.push(`${paused > 0 ? 'resumed' : 'moved'} to ${hubId}, move ${moves}`);
  });
  events.on('tunnel:give-up', () => void told.push('given up'));
  // As a span of the gateway, which its attempts replace by their own.
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  const open = async () => {
    const established = await behind(
      [tunnels.resume],
      routing(known, dials),
    )({ ...request, traceparent, log: dialLog() });
    const user: EndUser = {
      onData() {},
      onDrain() {},
      onEnd() {},
      onClose(failure) {
        if (failure instanceof PlaneEnded) told.push(`cut by ${failure.by}: ${failure.message}`);
      },
    };
    established.end.use(user, request.tenant);
    return established;
  };
  const { end, resumable: tunnel } = await open();
  assert.ok(tunnel);
  const loseThrough = (carrier: RecordingCarrier | undefined, reason: Error = LOST) => carrier?.lose(reason);
  const lose = (reason?: Error) => void loseThrough(carriers.at(-1), reason);
  const loseAll = (reason?: Error) => {
    for (const carrier of [...carriers]) loseThrough(carrier, reason);
  };
  return {
    open,
    loseAll,
    tunnels,
    end,
    tunnel,
    told,
    dialled,
    attaches,
    carriers,
    lose,
    known,
    suspects,
    traceparent,
    events,
  };
}

test('a tunnel whose hub is lost goes on through another, in the trace of its dial', async () => {
  const { tunnel, end, told, attaches, lose, tunnels, traceparent } = await gateway();
  const first = tunnel.hubId;
  const other = first === 'h1' ? 'h2' : 'h1';
  end.write(Buffer.from('hello'));
  assert.deepEqual([tunnel.attached, tunnels.kept], [true, 5]);
  lose();
  assert.equal(tunnel.attached, false);
  await until(() => tunnel.attached, 'an attach');
  assert.deepEqual(told, [`detached from ${first}: ${LOST.message}`, `resumed to ${other}, move 1`]);
  assert.deepEqual([tunnel.hubId, tunnel.sessionId], [other, `s of ${other}`]);
  assert.deepEqual([attaches.at(-1)?.id, attaches.at(-1)?.traceparent], [request.id, traceparent]);
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
  const { tunnels, told, lose } = await gateway(new DialError('connection_terminated', cause.message, { cause }));
  lose();
  await until(() => told.length === 3, 'an end');
  assert.deepEqual(told.slice(1), [`cut by agent: ${cause.message}`, 'given up']);
  assert.deepEqual([...tunnels], []);
});

test('a move that the agent refuses for good does not decide on what comes after it', async () => {
  const cause = new AttachRefused('this agent has no such tunnel', { final: true });
  const final = new DialError('connection_terminated', cause.message, { cause });
  const refusals = [final, new DialError('connection_terminated', 'the link has ended', { retryable: true })];
  const { tunnel, told, lose, known } = await gateway(refusals);
  const first = hub(tunnel.hubId, { peerAddress: 'p' });
  known.apply({ kind: 'hub', hub: { ...first, draining: true } });
  await until(() => refusals.length === 1, 'a refusal');
  known.apply({ kind: 'hub', hub: first });
  assert.equal(tunnel.attached, true);
  lose();
  await until(() => told.length > 1, 'another attach, or the end');
  assert.deepEqual([refusals, told.slice(1), tunnel.attached], [[], [`resumed to ${tunnel.hubId}, move 1`], true]);
});

test('a defect of ours as a tunnel goes on ends it at both ends', async () => {
  const { tunnels, lose, carriers, events } = await gateway(undefined, () => {
    throw new Error('a defect');
  });
  const faults: string[] = [];
  events.on('fault', (where, _remote, { message }) => faults.push(`${where}: ${message}`));
  lose();
  await until(() => faults.length > 0, 'a fault');
  assert.deepEqual([faults, [...tunnels]], [['resume: a defect'], []]);
  assert.equal(carriers.at(-1)?.told.at(-1), 'abort a defect');
});

test('a defect of ours as a tunnel looks for another session does not keep it from the next try', async () => {
  const { tunnel, told, lose, known, events } = await gateway();
  const faults: string[] = [];
  events.on('fault', (where, _remote, { message }) => faults.push(`${where}: ${message}`));
  Object.assign(known, {
    ofAgent() {
      delete (known as { ofAgent?: unknown }).ofAgent;
      throw new Error('a defect');
    },
  });
  lose();
  await until(() => tunnel.attached, 'another attach');
  assert.deepEqual([faults, told.at(-1)], [['resume: a defect'], `resumed to ${tunnel.hubId}, move 1`]);
});

test('tunnels of an agent that has hung up everywhere are given up at once', async () => {
  const { tunnels, open, told, attaches, loseAll, tunnel, known } = await gateway();
  while (new Set([...tunnels].map(({ sessionId }) => sessionId)).size < 2) await open();
  told.length = 0;
  loseAll(new HungUp('the agent has hung up'));
  await until(() => [...tunnels].length === 0, 'the end of all tunnels');
  assert.ok(attaches.length <= 1, 'only the first tunnel cannot know that the other session is gone too');
  assert.equal(known.size, 0);
  const ends = told.filter((what) => what.startsWith('cut by'));
  assert.ok(ends.length > 1);
  for (const end of ends) assert.equal(end, 'cut by agent: agent a has closed all its connections');
  assert.equal(tunnel.attached, false);
});

test('a tunnel whose agent has hung up on one hub does not try it there again', async () => {
  const { tunnel, told, attaches, lose, known } = await gateway();
  const first = tunnel.sessionId;
  lose(new HungUp('the agent has hung up'));
  assert.equal(known.size, 1, 'the registry says it later');
  await until(() => tunnel.attached, 'an attach');
  assert.notEqual(tunnel.sessionId, first);
  assert.deepEqual([attaches.length, told.length], [1, 2]);
});

test('a session that lets an attach run into the deadline is avoided, as a silent one is', async () => {
  const late = new DialError('connection_timeout', 'no answer', { expired: true });
  const { tunnel, end, lose, suspects } = await gateway(late);
  const other = `s of ${tunnel.hubId === 'h1' ? 'h2' : 'h1'}`;
  lose();
  await until(() => suspects.has(other, 'default'), 'a suspicion');
  end.abort(new Error('the caller went away'));
});

test('a tunnel goes on through another session than the one that has failed it, if there is one', async () => {
  const { tunnel, lose, known } = await gateway();
  const first = tunnel.sessionId;
  lose();
  assert.equal(known.size, 2);
  await until(() => tunnel.attached, 'an attach');
  assert.notEqual(tunnel.sessionId, first);
});

test('a caller that goes away while its tunnel is detached is told to the agent, and is cut by nobody', async () => {
  const { told, lose, end, tunnels } = await gateway();
  lose();
  end.abort(new Error('the caller went away'));
  await until(() => [...tunnels].length === 0, 'an end');
  assert.equal(told[1], 'given up');
});

test('when many tunnels lose their hub at once, they attach a few in each turn, and dials start meanwhile', async () => {
  const { tunnels, open, loseAll, dialled, attaches } = await gateway();
  await Promise.all(Array.from({ length: 99 }, open));
  loseAll();
  const counts = [attaches.length];
  const dials = dialled.length;
  await open();
  assert.equal(dialled.length, dials + 1);
  assert.ok(attaches.length < 50, `${attaches.length} attaches before the dial`);
  while (![...tunnels].every(({ attached }) => attached)) {
    await setImmediate();
    counts.push(attaches.length);
  }
  const most = Math.max(...counts.map((count, at) => count - (counts[at - 1] ?? 0)));
  assert.ok(most <= 4, `${most} attaches in one turn`);
  assert.equal(attaches.length, 100);
});

test('a tunnel counts on the session that carries it, and nowhere else', async () => {
  const { tunnel, end, lose, known } = await gateway();
  const open = () =>
    Object.fromEntries(
      [...known.ofAgent({ tenant: 'default', agentId: 'a' })].map((session) => [
        session.record.sessionId,
        session.open,
      ]),
    );
  const first = tunnel.sessionId;
  const other = first === 's of h1' ? 's of h2' : 's of h1';
  assert.deepEqual(open(), { [first]: 1, [other]: 0 });
  lose();
  await until(() => tunnel.attached, 'an attach');
  assert.deepEqual(open(), { [first]: 0, [other]: 1 });
  end.abort(new Error('the caller went away'));
  assert.deepEqual(open(), { [first]: 0, [other]: 0 });
});

test('a carrier that is lost as it is taken is the new session’s loss, and each session counts once', async () => {
  const { tunnel, told, lose, known, attaches } = await gateway(undefined, (carrier) =>
    carrier.lose(new SessionLost('lost at once')),
  );
  const first = tunnel.hubId;
  const other = first === 'h1' ? 'h2' : 'h1';
  lose();
  await until(() => attaches.length === 2 && tunnel.attached, 'a second attach');
  const attached = told.map((line) => line.replace(/^(moved|resumed)/, 'attached'));
  assert.deepEqual(attached, [
    `detached from ${first}: hub h1 was lost`,
    `attached to ${other}, move 1`,
    `detached from ${other}: lost at once`,
    `attached to ${first}, move 2`,
  ]);
  const open = [...known.ofAgent({ tenant: 'default', agentId: 'a' })].map((session) => session.open);
  assert.deepEqual(open.sort(), [0, 1]);
});

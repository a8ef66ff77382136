import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import {
  type AgentRoutes,
  type Attach,
  type Attached,
  AttachRefused,
  type AttachRequest,
  Deadlines,
  DialAbort,
  DialError,
  planeEvents,
  SessionLost,
  Tunnel,
} from '@isthmus/tunnel';
import { endOf } from '@isthmus/tunnel/testing';
import { leaveDraining, passedAttach } from './attach.ts';
import { GATEWAY } from './defaults.ts';

type AgentSession = ReturnType<AgentRoutes['directory']['ofAgent']> extends Iterable<infer Session> ? Session : never;

const INSTANCE = '0123456789abcdef';

function session(sessionId: string, hubId: string, instance = INSTANCE): AgentSession {
  return { record: { tenant: 'default', agentId: 'agent', instance, sessionId, hubId }, state: { draining: false } };
}

const [FIRST, SECOND] = [session('s1', 'h1'), session('s2', 'h2')];

/** @param hubs how each hub answers an attach; there is no link to others */
function gateway(sessions: readonly AgentSession[], hubs: Readonly<Record<string, Attach>>, ownHub?: string) {
  const seen = { forgotten: [] as string[], accused: [] as (readonly string[])[] };
  const timers = new Set<() => void>();
  const routes: AgentRoutes = {
    directory: {
      ownHub,
      watch() {},
      session: (id) => sessions.find(({ record }) => record.sessionId === id),
      ofAgent: () => sessions,
      forget: (id) => void seen.forgotten.push(id),
      enter: () => () => {},
    },
    nextHop(hubId) {
      const attach = hubs[hubId];
      return attach && { attach };
    },
    suspects: { accuse: (tenant, ...ids) => void seen.accused.push([tenant, ...ids]) },
    route: ({ instance, tried }) =>
      sessions
        .filter(({ record }) => record.instance === instance && !tried.has(record.sessionId))
        .map((each) => ({ session: each, rank: 1 })),
  };
  const deadlines = new Deadlines({
    now: () => 0,
    after(ms, run) {
      assert.ok(ms >= GATEWAY.passedAttachMs);
      timers.add(run);
      return () => timers.delete(run);
    },
  });
  const attach = passedAttach({
    ...routes,
    observation: { events: planeEvents() },
    deadlines,
  });
  return {
    attach,
    seen,
    deadlines,
    /** The time of the attach that waits is over. */
    silence() {
      for (const run of [...timers]) {
        timers.delete(run);
        run();
      }
    },
  };
}

function request(more: Partial<AttachRequest> = {}): AttachRequest {
  return {
    id: '0000000000000001',
    tenant: 'default',
    destination: { host: 'node', port: 1 },
    deadline: performance.now() + 60_000,
    session: 'this gateway',
    process: { agentId: 'agent', instance: INSTANCE },
    halfAtPeer: false,
    claim: { secret: '0'.repeat(32), number: 1, received: 0, taken: 0, final: 0 },
    signal: new DialAbort(),
    ...more,
  };
}

/** Answers with the session's name. */
const answers: Attach = async ({ session: sessionId }) =>
  ({ agentId: 'agent', sessionId, hubId: 'h', answer: {}, carrier: assert.fail }) as unknown as Attached;

function fails(code: ConstructorParameters<typeof DialError>[0], retryable: boolean, cause?: Error): Attach {
  return async () => {
    throw new DialError(code, `${code} of the test`, { retryable, ...(cause && { cause }) });
  };
}

/** Never answers. Ends as a link does when nobody waits any more. */
const silent: Attach = ({ signal }) =>
  new Promise((_, reject) =>
    signal.addEventListener('abort', () => reject(new DialError('connection_timeout', 'given up')), { once: true }),
  );

test("an attach takes the first session of the agent's process that has a link", async () => {
  const { attach, deadlines } = gateway([FIRST, SECOND], { h1: answers, h2: answers });
  assert.equal((await attach(request())).sessionId, 's1');
  assert.equal(deadlines.size, 0);
});

test('an attach that names no process is refused: it is not of isthmus hold', async () => {
  const { process: _, ...nameless } = request();
  await assert.rejects(gateway([FIRST], { h1: answers }).attach(nameless), {
    code: 'http_request_error',
    message: /names no agent's process/,
  });
});

test('a lost session is forgotten, and the next one is tried', async () => {
  const { attach, seen } = gateway([FIRST, SECOND], { h1: fails('destination_unavailable', true), h2: answers });
  assert.equal((await attach(request())).sessionId, 's2');
  assert.deepEqual(seen.forgotten, ['s1']);
  assert.deepEqual(seen.accused, []);
});

test('what the agent itself refuses is final: no other session is tried', async () => {
  const refused = new AttachRefused('the tunnel has ended: reset', { final: true });
  const { attach, seen } = gateway([FIRST, SECOND], {
    h1: fails('connection_terminated', false, refused),
    h2: async () => assert.fail('asked twice'),
  });
  await assert.rejects(attach(request()), (error: DialError) => error.cause === refused);
  assert.deepEqual(seen.forgotten, []);
});

test('a silent session and its hub are accused, and the next one is tried', async () => {
  const { attach, seen, silence } = gateway([FIRST, SECOND], { h1: silent, h2: answers });
  const attached = attach(request());
  silence();
  assert.equal((await attached).sessionId, 's2');
  assert.deepEqual(seen.accused, [['default', 's1', 'h1']]);
});

test('a gateway does not accuse the hub in its own process', async () => {
  const { attach, seen, silence } = gateway([FIRST, SECOND], { h1: silent, h2: answers }, 'h1');
  const attached = attach(request());
  silence();
  await attached;
  assert.deepEqual(seen.accused, [['default', 's1']]);
});

test('nobody is accused, and no other session asked, when nobody waits any more', async () => {
  const { attach, seen, deadlines } = gateway([FIRST, SECOND], { h1: silent, h2: async () => assert.fail('asked') });
  const signal = new DialAbort();
  const attached = attach(request({ signal }));
  signal.abort(new Error('the caller has gone'));
  await assert.rejects(attached, /given up/);
  assert.deepEqual([seen.accused, seen.forgotten, deadlines.size], [[], [], 0]);
});

test('nobody is accused, and no other session asked, when the deadline that the caller chose has passed', async () => {
  const expires: Attach = ({ deadline }) =>
    new Promise((_, reject) => {
      const expired = new DialError('connection_timeout', 'no answer within the deadline', { expired: true });
      setTimeout(() => reject(expired), Math.ceil(deadline - performance.now()) + 1);
    });
  const { attach, seen } = gateway([FIRST, SECOND], { h1: expires, h2: async () => assert.fail('asked') });
  await assert.rejects(attach(request({ deadline: performance.now() + 1 })), { expired: true });
  assert.deepEqual(seen.accused, []);
});

test('an attach ends with the last failure when every session has failed', async () => {
  const { attach } = gateway([FIRST, SECOND], {
    h1: fails('destination_unavailable', true),
    h2: fails('proxy_internal_error', true),
  });
  await assert.rejects(attach(request()), { code: 'proxy_internal_error' });
});

test('an agent without a session, or without a link to its hub, may come back; one that has restarted may not', async () => {
  for (const sessions of [[], [FIRST]])
    await assert.rejects(gateway(sessions, {}).attach(request()), (error: DialError) => {
      assert.deepEqual([error.message, error.retryable], ['there is no way to agent agent', true]);
      assert.ok(error.cause instanceof SessionLost);
      return true;
    });
  const restarted = gateway([session('s9', 'h1', 'fedcba9876543210')], { h1: answers });
  await assert.rejects(restarted.attach(request()), (error: DialError) => {
    assert.deepEqual([error.message, error.retryable], ['agent agent has restarted', false]);
    assert.deepEqual((error.cause as AttachRefused).final, true);
    return true;
  });
});

/** The tunnels of a gateway between hold and an agent whose session `s1` drains. `elsewhere` are its other ones. */
function drainingGateway() {
  const plane = { elsewhere: [] as readonly { session: AgentSession; rank?: number }[] };
  const draining: AgentSession = { ...FIRST, state: { draining: true } };
  let changed = (_: AgentSession['record']) => {};
  const directory = {
    ...{ ownHub: undefined, forget() {}, enter: () => () => {} },
    session: () => undefined,
    ofAgent: () => [draining, ...plane.elsewhere.map(({ session: each }) => each)],
    watch(watcher: { readonly changed: typeof changed }) {
      changed = watcher.changed;
    },
  };
  const route = () => {
    const ranked = [...plane.elsewhere, { session: draining, rank: 2 }];
    return ranked.sort((a, b) => (a.rank ?? 3) - (b.rank ?? 3));
  };
  const begun = leaveDraining({ directory, route });
  /** @returns why each end of it was aborted */
  const open = (passes: boolean, sessionId: string) => {
    const seen: Error[] = [];
    const end = (passOn?: () => boolean) => {
      const made = endOf(new PassThrough());
      const abort = (reason: Error) => {
        seen.push(reason);
        made.stream.destroy();
      };
      return Object.assign(made, { abort }, passOn && { passOn });
    };
    const names = { agentId: 'agent', sessionId, hubId: 'h' };
    const dial = { ...request(), deadline: 0 };
    const caller = end(() => passes);
    begun(new Tunnel('gateway', dial, caller, { end: end(), ...names }, planeEvents()));
    return seen;
  };
  return { plane, open, changed: () => changed(FIRST.record) };
}

test("a tunnel of hold leaves a session that drains once the agent's process has another one that stays", () => {
  const { plane, open, changed } = drainingGateway();
  const [held, own, elsewhere] = [open(true, 's1'), open(false, 's1'), open(true, 's2')];
  changed();
  assert.deepEqual([held, own, elsewhere], [[], [], []], 'there is no other session');
  plane.elsewhere = [{ session: SECOND }];
  changed();
  assert.deepEqual([held, own, elsewhere], [[], [], []], 'an attach would come back to the one that drains');
  plane.elsewhere = [{ session: SECOND, rank: 1 }];
  changed();
  assert.deepEqual([held.length, own, elsewhere], [2, [], []]);
  assert.ok(held[0] instanceof SessionLost);
});

test('a tunnel of hold leaves a session at once that began to drain before its dial or attach was answered', () => {
  const { plane, open } = drainingGateway();
  plane.elsewhere = [{ session: SECOND }];
  assert.deepEqual(open(true, 's1'), [], 'an attach would come back to the one that drains');
  plane.elsewhere = [{ session: SECOND, rank: 1 }];
  const [held, own, elsewhere] = [open(true, 's1'), open(false, 's1'), open(true, 's2')];
  assert.deepEqual([held.length, own, elsewhere], [2, [], []]);
});

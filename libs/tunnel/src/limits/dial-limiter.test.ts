import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { type TestContext, test } from 'node:test';
import type { Attached, AttachRequest, Dial, DialRequest, Established } from '../dial.ts';
import { behind, endOf } from '../testing/index.ts';
import { DialLimiter, refuseWhenScarce } from './dial-limiter.ts';
import { UNLIMITED } from './limits.ts';
import type { DialLimits } from './table.ts';

function request(tenant = 'default'): DialRequest {
  const destination = { host: 'x', port: 1 };
  return { id: '00000000000000aa', tenant, destination, deadline: 1e12, signal: new AbortController().signal };
}

/** A limiter, and a Dial behind it that answers when the test says so. */
function held(limits?: (tenant: string) => DialLimits) {
  const answers: (() => void)[] = [];
  const stream = new PassThrough().setMaxListeners(0);
  const end = endOf(stream);
  const established: Established = { end, agentId: 'a', sessionId: 's', hubId: 'h', timing: {} };
  const limiter = new DialLimiter(limits);
  const open = () => new Promise<Established>((resolve) => answers.push(() => resolve(established)));
  const dial = behind([limiter.limit], open);
  return { limiter, dial, answers, stream };
}

/** A limiter with limits that the test changes, and a clock that stands still. */
function limited({ mock }: TestContext, limits: Partial<DialLimits>) {
  const state = { now: 0, limits: { ...UNLIMITED, ...limits } };
  const of = (tenant: string) => (tenant === 'acme' ? state.limits : UNLIMITED);
  mock.method(performance, 'now', () => state.now);
  return { state, ...held(of) };
}

test('a tenant with too many pending dials is refused, others are not', async () => {
  const { limiter, dial, answers } = held();
  const pending = Array.from({ length: 2000 }, () => dial(request()));
  await assert.rejects(dial(request()), {
    code: 'connection_limit_reached',
    message: 'tenant default has 2000 dials without an answer already',
  });
  const other = dial(request('other'));
  assert.equal(limiter.pending, 2001);
  for (const answer of answers.splice(0)) answer();
  await Promise.all([...pending, other]);
  assert.equal(limiter.pending, 0);
  const after = dial(request());
  answers[0]?.();
  await after;
});

test('closing refuses new dials and waits for pending ones', async () => {
  const { limiter, dial, answers } = held();
  const pending = dial(request());
  let closed = false;
  const closing = limiter.close().then(() => {
    closed = true;
  });
  await assert.rejects(dial(request()), {
    code: 'destination_unavailable',
    message: 'proxy is shutting down',
    retryable: true,
    retryAfter: 0,
  });
  assert.equal(closed, false);
  answers[0]?.();
  await pending;
  await closing;
});

test('dials over the rate are refused as 429 with the limit’s name, until time has passed; others are not', async (context) => {
  const { limiter, dial, answers, state } = limited(context, { dialsPerSecond: 2, burst: 3 });
  const dials = [1, 2, 3].map(() => dial(request('acme')));
  await assert.rejects(dial(request('acme')), {
    code: 'connection_limit_reached',
    status: 429,
    limit: 'dialsPerSecond',
    retryAfter: 1,
    retryable: false,
    message:
      "tenant acme has reached its limit dialsPerSecond of 2: dial again after 1 s, or raise it in the tenant's file",
  });
  dials.push(dial(request('other')));
  state.now += 500;
  dials.push(dial(request('acme')));
  state.limits = { ...state.limits, dialsPerSecond: 0.1 };
  await assert.rejects(dial(request('acme')), { retryAfter: 10 });
  for (const answer of answers) answer();
  await Promise.all(dials);
  assert.equal(limiter.use('acme')?.dials, 4);
});

test('pending dials and tunnels are limited, and a limit that is raised counts at once', async (context) => {
  const { limiter, dial, answers, state, stream } = limited(context, { pendingDials: 1 });
  const first = dial(request('acme'));
  await assert.rejects(dial(request('acme')), { status: 503, limit: 'pendingDials', retryAfter: 1 });
  state.limits = { ...UNLIMITED, tunnels: 2 };
  const second = dial(request('acme'));
  await assert.rejects(dial(request('acme')), { status: 503, limit: 'tunnels' });
  for (const answer of answers.splice(0)) answer();
  await Promise.all([first, second]);
  assert.deepEqual([limiter.use('acme')?.pendingDials, limiter.use('acme')?.tunnels], [0, 2]);
  await assert.rejects(dial(request('acme')), { limit: 'tunnels' });
  stream.destroy();
  await once(stream, 'close');
  assert.equal(limiter.use('acme')?.tunnels, 0);
  const third = dial(request('acme'));
  answers[0]?.();
  await third;
  assert.equal(limiter.use('acme')?.tunnels, 0, 'a stream that has closed already is no tunnel');
});

test('attaches count as pending dials, and those of a tenant with all its tunnels are not refused', async () => {
  for (const limits of [undefined, () => ({ ...UNLIMITED, pendingDials: 2000, tunnels: 1 })]) {
    const { limiter, dial, answers, stream } = held(limits);
    const answer = { end: endOf(stream) } as unknown as Attached;
    const attach = limiter.limitAttaches(() => new Promise((resolve) => answers.push(() => resolve(answer))));
    const asked = request() as DialRequest & AttachRequest;
    const first = dial(asked);
    answers.pop()?.();
    await first;
    const attaches = Array.from({ length: 2000 }, () => attach(asked));
    for (const more of [attach, dial]) await assert.rejects(more(asked), { code: 'connection_limit_reached' });
    for (const each of answers.splice(0)) each();
    await Promise.all(attaches);
    assert.equal(limiter.use('default')?.pendingDials, 0);
    assert.equal(limiter.use('default')?.tunnels, limits ? 2001 : 0);
    stream.destroy();
    await once(stream, 'close');
    assert.equal(limiter.use('default')?.tunnels, 0);
  }
});

test('tenants that use nothing are forgotten, those that do are not', async (context) => {
  const { limiter, dial, answers, state } = limited(context, { dialsPerSecond: 1, burst: 1 });
  const kept = dial(request('acme'));
  const others = Array.from({ length: 999 }, (_, tenant) => dial(request(`other-${tenant}`)));
  for (const answer of answers.splice(0)) answer();
  await Promise.all([kept, ...others]);
  state.limits = { ...state.limits, tunnels: 0 };
  const more = dial(request('one-more'));
  answers[0]?.();
  await more;
  assert.ok(limiter.use('acme'), 'its rate is used up');
});

test('a dial is refused while descriptors or memory are scarce, and may be retried elsewhere', async () => {
  const [left, bytes] = [{ scarce: true }, { scarce: true }];
  const asked: string[] = [];
  const inner: Dial = ({ id }) => {
    asked.push(id);
    return Promise.reject(new Error('asked'));
  };
  const dial = behind([refuseWhenScarce('agent a1', left, bytes)], inner);
  await assert.rejects(dial({ ...request(), id: 'first' }), {
    code: 'connection_limit_reached',
    retryable: true,
    message: 'agent a1: too many open files: the process needs a higher limit, or fewer tunnels',
  });
  left.scarce = false;
  await assert.rejects(dial({ ...request(), id: 'first' }), {
    code: 'connection_limit_reached',
    retryable: true,
    message: 'agent a1: too little memory: the process needs a higher limit, or fewer tunnels',
  });
  bytes.scarce = false;
  await assert.rejects(dial({ ...request(), id: 'second' }), /asked/);
  assert.deepEqual(asked, ['second']);
});

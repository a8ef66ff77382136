import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Grant } from '@isthmus/admission';
import { deferred } from '@isthmus/runtime';
import { NotAuthorised } from '@isthmus/tunnel';
import { SessionStanding } from './session-standing.ts';

const PRINCIPAL = {
  tenant: 'acme',
  role: 'agent',
  name: 'edge',
  rule: 'acme.yaml: agents[0].tokens',
  shared: true,
} as const;

/** A grant that a test ends, and how many watch it. */
function granted() {
  const watching = new Set<(reason: NotAuthorised) => void>();
  const watch: Grant['watch'] = (ended) => {
    watching.add(ended);
    return () => void watching.delete(ended);
  };
  const end = (why: string) => {
    for (const ended of [...watching]) ended(new NotAuthorised(why));
  };
  return { grant: { watch, principal: PRINCIPAL } as unknown as Grant, end, watching };
}

/** A session whose fresh tokens are verified by `renew`, and what it reports. */
function standing(renew?: (token: string) => Promise<Grant>) {
  const said: string[] = [];
  const first = granted();
  const of: unknown[] = [];
  const report = (what: string) => (error: Error) => {
    said.push(`${what}: ${error.message}`);
    of.push((error as NotAuthorised).principal);
  };
  const session = new SessionStanding({
    grant: first.grant,
    renew,
    ended: report('ended'),
    refused: report('refused'),
  });
  return { session, first, said, of, taken: () => void said.push('taken') };
}

test('a session stands on its newest grant alone', async () => {
  const next = granted();
  const { session, first, said, taken } = standing(async () => next.grant);
  await session.renew('fresh', taken);
  assert.deepEqual([first.watching.size, next.watching.size], [0, 1]);
  first.end('it expired');
  next.end('its key was removed');
  assert.deepEqual(said, ['taken', 'ended: its key was removed']);
});

test('a fresh token that is refused leaves the session as it is', async () => {
  const { session, first, said, of, taken } = standing(() => Promise.reject(new NotAuthorised('its signature is bad')));
  await session.renew('fresh', taken);
  await session.renew('another', taken);
  assert.equal(first.watching.size, 1);
  assert.deepEqual(of, [PRINCIPAL, PRINCIPAL], 'the session is not a stranger’s');
  first.end('it expired');
  const fast = 'refused: fresh tokens come too fast';
  assert.deepEqual(said, ['refused: its signature is bad', fast, 'ended: it expired']);
});

test('tokens that come too fast, or to a session without one, are not verified', async () => {
  const answer = deferred<Grant>();
  const { session, said, taken } = standing(() => answer.promise);
  const first = session.renew('one', taken);
  await session.renew('two', taken);
  answer.resolve(granted().grant);
  await first;
  await session.renew('three', taken);
  const none = standing();
  await none.session.renew('any', none.taken);
  const fast = 'refused: fresh tokens come too fast';
  assert.deepEqual(
    [...said, ...none.said],
    [fast, 'taken', fast, 'refused: the session stands on no token that could be renewed'],
  );
});

test('nothing is watched once the session has ended, also if its token is verified later', async () => {
  const [answer, next] = [deferred<Grant>(), granted()];
  const { session, first, said, taken } = standing(() => answer.promise);
  const renewed = session.renew('fresh', taken);
  session[Symbol.dispose]();
  answer.resolve(next.grant);
  await renewed;
  assert.deepEqual([first.watching.size, next.watching.size, said], [0, 0, []]);
});

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it, mock, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { kubeClient } from './client.ts';
import { FakeApiServer } from './testing/api-server.ts';
import { TokenReviews, type TokenVerdict, tokenAuthenticator } from './token-reviews.ts';

describe('reviews', () => {
  afterEach(() => mock.timers.reset());

  /** An API server that answers when the test says so: `good...` holds, `away` cannot be asked about. */
  function reviewed({ rememberMs = 30_000, random = (): number => 0, mostWaiting = 10_000 } = {}) {
    const asked: { token: string; answer: () => void }[] = [];
    const clock = { now: 0 };
    const verdict = (token: string): TokenVerdict =>
      token.startsWith('good')
        ? { ok: true, user: token }
        : { ok: false, reviewed: !token.startsWith('away'), message: 'no' };
    const reviews = new TokenReviews({
      ...{ rememberMs, random, mostWaiting },
      now: () => clock.now,
      review: (token) => new Promise((resolve) => asked.push({ token, answer: () => resolve(verdict(token)) })),
    });
    const asker = (source: string, controller = new AbortController()) => ({ source, signal: controller.signal });
    const answerAll = async () => {
      for (let at = 0; at < asked.length; at++) {
        asked[at]?.answer();
        await tick();
      }
    };
    return { reviews, asked, clock, asker, answerAll };
  }

  test('a token that many show at once is reviewed once', async () => {
    const { reviews, asked, asker, answerAll } = reviewed();
    const verdicts = Array.from({ length: 100 }, (_, i) => reviews.check('good', asker(`10.0.0.${i}`)));
    await answerAll();
    assert.ok((await Promise.all(verdicts)).every(({ ok }) => ok));
    assert.equal(asked.length, 1);
  });

  test('an answer holds for a while, a refusal for less, and none that says nothing of the token', async () => {
    const { reviews, asked, clock, asker, answerAll } = reviewed();
    const tokens = ['good', 'bad', 'away'];
    const ask = async () => {
      const before = asked.length;
      const verdicts = Promise.all(tokens.map((token) => reviews.check(token, asker('10.0.0.1'))));
      await answerAll();
      assert.deepEqual(
        (await verdicts).map(({ ok }) => ok),
        [true, false, false],
      );
      return asked.slice(before).map(({ token }) => token);
    };
    assert.deepEqual(await ask(), ['good', 'bad', 'away']);
    clock.now = 9_999;
    assert.deepEqual(await ask(), ['away']);
    clock.now = 10_000;
    assert.deepEqual(await ask(), ['bad', 'away']);
    clock.now = 30_000;
    assert.deepEqual(await ask(), ['good', 'bad', 'away']);
  });

  test('without a memory each token is reviewed each time', async () => {
    const { reviews, asked, asker, answerAll } = reviewed({ rememberMs: 0 });
    for (let i = 0; i < 3; i++) {
      const verdict = reviews.check('good', asker('10.0.0.1'));
      await answerAll();
      await verdict;
    }
    assert.equal(asked.length, 3);
  });

  test('a flood of junk from one source leaves every other its turn, and its own honest ones a chance', async () => {
    // What the flood leaves waiting would keep the process for 10 s.
    mock.timers.enable({ apis: ['setTimeout'] });
    let draws = 0;
    // Draws that fall everywhere, the same at each run.
    const { reviews, asked, asker } = reviewed({ random: () => (draws++ * 0.618_034) % 1 });
    for (let i = 0; i < 2_000; i++) void reviews.check(`junk-${i}`, asker('10.0.0.1'));
    assert.deepEqual([asked.length, reviews.waiting], [10, 1_990]);
    void reviews.check('good-beside', asker('10.0.0.1'));
    const honest = reviews.check('good-elsewhere', asker('10.0.0.2'));
    asked[0]?.answer();
    await tick();
    asked[1]?.answer();
    await tick();
    const place = asked.findIndex(({ token }) => token === 'good-elsewhere');
    assert.ok(place <= 11, `reviewed as number ${place + 1}`);
    asked[place]?.answer();
    assert.equal((await honest).ok, true);
    for (let at = 2; !asked.some(({ token }) => token === 'good-beside'); at++) {
      assert.ok(at < 2_001, 'its turn never came');
      asked[at]?.answer();
      await tick();
    }
  });

  test('junk of many sources leaves a further one a place and its turn', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const { reviews, asked, asker } = reviewed({ mostWaiting: 200 });
    const junk = Array.from({ length: 20 * 16 }, (_, i) => reviews.check(`junk-${i}`, asker(`10.0.0.${i % 20}`)));
    const refused = await Promise.race([junk.at(-1), tick()]);
    assert.match(JSON.stringify(refused), /200 tokens already wait for a review/);
    const honest = reviews.check('good', asker('10.1.0.1'));
    assert.deepEqual([asked.length, reviews.waiting], [10, 200], 'it has the place of one of those with the most');
    for (let at = 0; !asked.some(({ token }) => token === 'good'); at++) {
      assert.ok(at < 21, 'its turn came late');
      asked[at]?.answer();
      await tick();
    }
    asked.at(-1)?.answer();
    assert.equal((await honest).ok, true);
  });

  test('a token that was good before is reviewed again ahead of all others, also where too many wait', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const { reviews, asked, clock, asker, answerAll } = reviewed({ mostWaiting: 20 });
    const before = reviews.check('good', asker('10.0.0.1'));
    await answerAll();
    await before;
    clock.now = 30_000;
    for (let i = 0; i < 40; i++) void reviews.check(`junk-${i}`, asker('10.0.0.1'));
    assert.equal(reviews.waiting, 20);
    const again = reviews.check('good', asker('10.0.0.1'));
    asked[1]?.answer();
    await tick();
    assert.equal(asked.at(-1)?.token, 'good');
    asked.at(-1)?.answer();
    assert.equal((await again).ok, true);
  });

  test('who goes away or waits for too long is not reviewed', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const { reviews, asked, asker } = reviewed();
    for (let i = 0; i < 10; i++) void reviews.check(`junk-${i}`, asker('10.0.0.1'));
    const gone = new AbortController();
    const first = reviews.check('good', asker('10.0.0.2', gone));
    const second = reviews.check('good', asker('10.0.0.3'));
    gone.abort();
    assert.equal((await first).ok, false);
    assert.equal(reviews.waiting, 1, 'another still waits for it');
    mock.timers.tick(10_000);
    const verdict = await second;
    assert.ok(!verdict.ok);
    assert.match(verdict.message, /not reviewed in time/);
    assert.deepEqual([reviews.waiting, asked.length], [0, 10]);
    const already = new AbortController();
    already.abort();
    assert.equal((await reviews.check('good', asker('10.0.0.2', already))).ok, false);
    assert.equal(reviews.waiting, 0);
  });

  test('what is remembered is bounded', async () => {
    const { reviews, asker, asked } = reviewed();
    for (let i = 0; i < 10_500; i++) {
      const verdict = reviews.check(`junk-${i}`, asker('10.0.0.1'));
      asked.pop()?.answer();
      await verdict;
    }
    void reviews.check('junk-10499', asker('10.0.0.1'));
    assert.equal(asked.length, 0);
    void reviews.check('junk-499', asker('10.0.0.1'));
    assert.equal(asked.length, 1, 'the oldest are forgotten');
    asked.pop()?.answer();
  });
});

describe('token review', () => {
  let api: FakeApiServer;

  before(async () => {
    api = await FakeApiServer.start();
  });
  after(() => api[Symbol.asyncDispose]());

  const AGENTS = { namespace: 'kube-system', serviceAccount: 'agent' };

  interface Asking {
    readonly apiToken?: string;
    readonly timeoutMs?: number;
    readonly users?: Parameters<typeof tokenAuthenticator>[0]['users'];
  }

  async function verdict(
    token: string,
    status: unknown,
    { apiToken = 'secret', timeoutMs = 60_000, users = AGENTS }: Asking = {},
  ) {
    api.reviews.set(token, status);
    using client = await kubeClient({ source: async () => ({ ...api.connection, token: apiToken }), timeoutMs });
    const authenticate = tokenAuthenticator({
      client,
      users,
      audience: 'isthmus',
    });
    return authenticate(token);
  }

  function user(username: string, audiences?: string[]) {
    return { authenticated: true, user: { username }, ...(audiences ? { audiences } : {}) };
  }

  const AGENT = 'system:serviceaccount:kube-system:agent';

  describe('an agent token', () => {
    it('is accepted if it belongs to the expected service account', async () => {
      assert.deepEqual(await verdict('good', user(AGENT, ['isthmus'])), { ok: true, user: AGENT });
      assert.deepEqual(api.seen.at(-1), {
        call: 'POST /apis/authentication.k8s.io/v1/tokenreviews',
        body: {
          apiVersion: 'authentication.k8s.io/v1',
          kind: 'TokenReview',
          spec: { token: 'good', audiences: ['isthmus'] },
        },
      });
    });

    const refused: readonly [name: string, status: unknown, message: string][] = [
      ['an invalid token', { authenticated: false }, 'service account jwt not valid'],
      ['no status', undefined, 'service account jwt not valid'],
      ['an error of the review', { authenticated: true, error: 'expired' }, 'expired'],
      ['another audience', user(AGENT, ['api']), 'token is not for audience "isthmus"'],
      [
        'an answer without audiences',
        user(AGENT),
        'the API server did not check that the token is for audience "isthmus"',
      ],
      [
        'an empty list of audiences',
        user(AGENT, []),
        'the API server did not check that the token is for audience "isthmus"',
      ],
      ['a person', user('jane', ['isthmus']), 'unexpected username format'],
      ['no user', { authenticated: true, audiences: ['isthmus'] }, 'unexpected username format'],
      ['a node', user('system:node:a:b', ['isthmus']), 'username returned is not a service account'],
      ['more than four parts', user(`${AGENT}:x`, ['isthmus']), 'unexpected username format'],
      [
        'another namespace',
        user('system:serviceaccount:default:agent', ['isthmus']),
        'incoming request from "default" namespace. Expected "kube-system"',
      ],
      [
        'another account',
        user('system:serviceaccount:kube-system:bob', ['isthmus']),
        'incoming request from "bob" service account. Expected "agent"',
      ],
    ];
    for (const [name, status, message] of refused) {
      it(`is refused for ${name}`, async () => {
        assert.deepEqual(await verdict(name, status), {
          ok: false,
          reviewed: true,
          message: `lookup failed: ${message}`,
        });
      });
    }

    it('is accepted by the name of its user, where names are listed', async () => {
      const users = ['jane', AGENT];
      assert.deepEqual(await verdict('jane', user('jane', ['isthmus']), { users }), { ok: true, user: 'jane' });
      const message = 'lookup failed: user "bob" is not one of those allowed';
      assert.deepEqual(await verdict('bob', user('bob', ['isthmus']), { users }), {
        ok: false,
        reviewed: true,
        message,
      });
    });

    it('is rejected if the server itself may not log in', async () => {
      const refusal = await verdict('good', user(AGENT), { apiToken: 'wrong' });
      assert.ok(!refusal.ok);
      assert.match(refusal.message, /^the token could not be reviewed: POST .*: status 401 Unauthorized/);
    });

    it('is rejected if the API server does not answer', async () => {
      api.intercept = () => true;
      const refusal = await verdict('good', user(AGENT), { timeoutMs: 100 });
      api.intercept = () => false;
      assert.ok(!refusal.ok);
      assert.match(refusal.message, /no answer within 100 ms/);
    });
  });
});

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { kubeClient } from './client.ts';
import { FakeApiServer } from './testing/api-server.ts';
import { tokenAuthenticator } from './token-review.ts';

describe('token review', () => {
  let api: FakeApiServer;

  before(async () => {
    api = await FakeApiServer.start();
  });
  after(() => api[Symbol.asyncDispose]());

  async function verdict(token: string, status: unknown, { apiToken = 'secret', timeoutMs = 60_000 } = {}) {
    api.reviews.set(token, status);
    using client = await kubeClient({ source: async () => ({ ...api.connection, token: apiToken }), timeoutMs });
    const authenticate = tokenAuthenticator({
      client,
      namespace: 'kube-system',
      serviceAccount: 'agent',
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
      assert.deepEqual(await verdict('good', user(AGENT, ['isthmus'])), { ok: true });
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

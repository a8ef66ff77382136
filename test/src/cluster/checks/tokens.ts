import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:tls';
import { LinkRefused, requestLink } from '@isthmus/transport';
import { apply, kubectl } from '../kubernetes.ts';
import { NAMESPACE as ELSEWHERE } from '../probe.ts';
import { ADDRESS } from '../settings.ts';
import type { Check } from './check.ts';

const AGENT_PORT = 8091;
const AUDIENCE = 'system:konnectivity-server';
const NAMESPACE = 'isthmus-agent';
const ACCOUNT = 'agent';
const ANSWER_MS = 20_000;
const HOUR_S = 3600;

/** That the API server's own TokenReview decides who may be an agent. */
export const TOKENS: readonly Check[] = [
  {
    name: 'nine wrong tokens',
    async run() {
      const right = await tokenOf(ACCOUNT);
      assert.equal(await answer(right), 'accepted');
      // The forger below is able: what it changes is what is refused.
      assert.equal(await answer(forged(right, {}, clusterKey())), 'accepted');
      const wrong = await wrongTokens(right);
      const answers = await Promise.all(
        Object.entries(wrong).map(async ([what, token]) => [what, await answer(token)]),
      );
      assert.equal(answers.length, 9);
      for (const [what, said] of answers) assert.match(said ?? '', /^40[13] /, what);
      return answers.map(([what, said]) => `${what}: ${said?.slice(0, 3)}`).join(', ');
    },
  },
];

async function wrongTokens(right: string): Promise<Record<string, string>> {
  const past = Math.floor(Date.now() / 1000) - HOUR_S;
  const others = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  await apply(JSON.stringify(account(ELSEWHERE)));
  return {
    'not a token': randomBytes(30).toString('hex'),
    "the API server's audience": await tokenOf(ACCOUNT, { audience: undefined }),
    'another audience': await tokenOf(ACCOUNT, { audience: 'another' }),
    'another account': await tokenOf('default'),
    'the account of that name in another namespace': await tokenOf(ACCOUNT, { namespace: ELSEWHERE }),
    expired: forged(right, { iat: past - HOUR_S, nbf: past - HOUR_S, exp: past }, clusterKey()),
    'signed by another key': forged(right, {}, others),
    'not signed': forged(right, {}, undefined),
    'bound to what is deleted': await orphaned(),
  };
}

interface TokenOptions {
  readonly namespace?: string;
  readonly audience?: string | undefined;
  readonly bound?: readonly string[];
}

async function tokenOf(name: string, options: TokenOptions = {}): Promise<string> {
  const { namespace, audience, bound } = { namespace: NAMESPACE, audience: AUDIENCE, bound: [], ...options };
  const asked = ['-n', namespace, 'create', 'token', name, ...(audience ? [`--audience=${audience}`] : []), ...bound];
  return (await kubectl(asked)).trim();
}

/** Returns a token that ends with a secret, which is deleted. */
async function orphaned(): Promise<string> {
  const secret = `bound-${randomBytes(4).toString('hex')}`;
  await kubectl(['-n', NAMESPACE, 'create', 'secret', 'generic', secret]);
  const token = await tokenOf(ACCOUNT, { bound: ['--bound-object-kind=Secret', `--bound-object-name=${secret}`] });
  await kubectl(['-n', NAMESPACE, 'delete', 'secret', secret]);
  return token;
}

function account(namespace: string): object {
  return { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: ACCOUNT, namespace } };
}

/** The key with which the cluster signs tokens. */
function clusterKey(): KeyObject {
  return createPrivateKey(readFileSync('/etc/kubernetes/pki/sa.key'));
}

/** Returns a token with other claims, signed by a key or by none. */
function forged(token: string, claims: object, key: KeyObject | undefined): string {
  const [head = '', body = ''] = token.split('.');
  const read = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString());
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const unsigned = `${encode({ ...read(head), ...(key ? {} : { alg: 'none' }) })}.${encode({ ...read(body), ...claims })}`;
  return `${unsigned}.${key ? sign('sha256', Buffer.from(unsigned), key).toString('base64url') : ''}`;
}

/** Says to the server what an agent says that has this token. */
async function answer(token: string): Promise<string> {
  const socket = connect({ host: ADDRESS, port: AGENT_PORT, ca: readFileSync('/etc/kubernetes/pki/ca.crt') });
  try {
    await once(socket, 'secureConnect');
    const hello = { agentId: 'of-the-check', identifiers: '', version: 'test', token };
    await requestLink(socket, ADDRESS, hello, ANSWER_MS);
    return 'accepted';
  } catch (error) {
    if (error instanceof LinkRefused) return `${error.status} ${error.message}`;
    throw error;
  } finally {
    socket.destroy();
  }
}

import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:tls';
import { LinkRefused, requestLink } from '@isthmus/transport';
import { apply, kubectl } from '../kubectl.ts';
import { NAMESPACE } from '../probe.ts';
import { ADDRESS } from '../settings.ts';
import type { Check } from '../step.ts';

const AGENT_PORT = 8091;
const AUDIENCE = 'system:konnectivity-server';
/** What may be its own agent's, and has an account of the same name. */
const ELSEWHERE = { namespace: NAMESPACE };
const ACCOUNT = 'agent';
const AGENTS = 'isthmus-agent';
const ANSWER_MS = 20_000;
const HOUR_S = 3600;

/** That the API server's own TokenReview decides who may be an agent. */
export const TOKENS: Check = {
  name: 'nine wrong tokens',
  async run() {
    await apply({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: ACCOUNT, ...ELSEWHERE } });
    const right = await tokenOf(ACCOUNT, { audience: AUDIENCE });
    const clusterKey = createPrivateKey(readFileSync('/etc/kubernetes/pki/sa.key'));
    // The forger below is able: what it changes is what is refused.
    for (const token of [right, forged(right, {}, clusterKey)]) assert.equal(await answer(token), 'accepted');
    const past = Math.floor(Date.now() / 1000) - HOUR_S;
    const wrong = {
      'not a token': randomBytes(30).toString('hex'),
      "the API server's audience": await tokenOf(ACCOUNT),
      'another audience': await tokenOf(ACCOUNT, { audience: 'another' }),
      'another account': await tokenOf('default', { audience: AUDIENCE }),
      'the account of that name in another namespace': await tokenOf(ACCOUNT, { audience: AUDIENCE, ...ELSEWHERE }),
      expired: forged(right, { iat: past - HOUR_S, nbf: past - HOUR_S, exp: past }, clusterKey),
      'signed by another key': forged(right, {}, generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey),
      'not signed': forged(right, {}, undefined),
      'bound to what is deleted': await orphaned(),
    };
    for (const [what, token] of Object.entries(wrong)) assert.match(await answer(token), /^40[13] /, what);
    return Object.keys(wrong).join(', ');
  },
};

interface TokenOptions {
  readonly audience?: string;
  readonly namespace?: string;
  readonly bound?: readonly string[];
}

async function tokenOf(name: string, options: TokenOptions = {}): Promise<string> {
  const { audience, namespace = AGENTS, bound = [] } = options;
  const asked = ['-n', namespace, 'create', 'token', name, ...bound];
  return (await kubectl(audience ? [...asked, `--audience=${audience}`] : asked)).trim();
}

/** Returns a token that ends with a secret, which is deleted. */
async function orphaned(): Promise<string> {
  const secret = `bound-${randomBytes(4).toString('hex')}`;
  await kubectl(['-n', AGENTS, 'create', 'secret', 'generic', secret]);
  const bound = ['--bound-object-kind=Secret', `--bound-object-name=${secret}`];
  const token = await tokenOf(ACCOUNT, { audience: AUDIENCE, bound });
  await kubectl(['-n', AGENTS, 'delete', 'secret', secret]);
  return token;
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

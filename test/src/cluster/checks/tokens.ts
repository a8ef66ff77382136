import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
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
const ANSWER_MS = 20_000;

/** That the API server's own TokenReview decides who may be an agent. */
export const TOKENS: Check = {
  name: 'five wrong tokens',
  async run() {
    await apply({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: ACCOUNT, ...ELSEWHERE } });
    const wrong = {
      'not a token': randomBytes(30).toString('hex'),
      "the API server's audience": await tokenOf(ACCOUNT),
      'another audience': await tokenOf(ACCOUNT, { audience: 'another' }),
      'another account': await tokenOf('default', { audience: AUDIENCE }),
      'the account of that name in another namespace': await tokenOf(ACCOUNT, { audience: AUDIENCE, ...ELSEWHERE }),
    };
    assert.equal(await answer(await tokenOf(ACCOUNT, { audience: AUDIENCE })), 'accepted');
    for (const [what, token] of Object.entries(wrong)) assert.match(await answer(token), /^40[13] /, what);
    return Object.keys(wrong).join(', ');
  },
};

async function tokenOf(
  name: string,
  { audience, namespace = 'isthmus-agent' }: { audience?: string; namespace?: string } = {},
): Promise<string> {
  const asked = ['-n', namespace, 'create', 'token', name];
  return (await kubectl(audience ? [...asked, `--audience=${audience}`] : asked)).trim();
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

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { newTrust, type Scope, scoped, startAgent, startServer, type Trust } from '../harness/index.ts';
import { kubeApi } from './kube-api.ts';

/** Starts a server that accepts agents by the tokens of one service account. */
async function withTokens(scope: Scope, trust: Trust) {
  const api = await kubeApi(scope, trust);
  api.trust('of-agents', 'kube-system:konnectivity-agent');
  api.trust('of-others', 'default:default');
  return startServer(scope, trust, {
    'cluster-ca-cert': undefined,
    kubeconfig: api.kubeconfig,
    'agent-namespace': 'kube-system',
    'agent-service-account': 'konnectivity-agent',
    'authentication-audience': 'system:konnectivity-server',
  });
}

/** Starts an agent with a token and no certificate. */
async function bearer(scope: Scope, trust: Trust, port: number, token: string) {
  const path = join(trust.dir, token);
  await writeFile(path, token);
  const flags = { 'agent-cert': undefined, 'agent-key': undefined, 'service-account-token-path': path };
  return startAgent(scope, trust, port, flags);
}

test(
  'over TLS an agent gets in with a token instead of a certificate, and not with the token of another service account',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await withTokens(scope, trust);
    const agent = await bearer(scope, trust, server.agentPort, 'of-agents');
    await agent.waitReady();
    const other = await bearer(scope, trust, server.agentPort, 'of-others');
    await other.waitForLine(/token was not accepted/);
  }),
);

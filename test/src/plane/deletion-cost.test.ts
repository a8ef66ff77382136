import assert from 'node:assert/strict';
import test from 'node:test';
import { failure, PATCHED_POD } from '@isthmus/kube/testing';
import {
  echo,
  newTrust,
  type Program,
  type Scope,
  scoped,
  startAgent,
  startServer,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { carries, closed, dial } from './dials.ts';
import { kubeApi } from './kube-api.ts';

/** What the kubelet gives a pod: a token that names it. */
const CLAIMS = { 'kubernetes.io': { namespace: 'isthmus-agent', pod: { name: 'agent-1', uid: 'u' } } };
const TOKEN = `e30.${Buffer.from(JSON.stringify(CLAIMS)).toString('base64url')}.c2ln`;

async function planeOfPods(scope: Scope) {
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust);
  const kube = await kubeApi(scope, trust, TOKEN);
  const start = async () => {
    const flags = { kubeconfig: kube.kubeconfig, 'agent-id': 'agent-1', 'drain-timeout': '100ms' };
    const agent = await startAgent(scope, trust, server.agentPort, flags);
    await agent.waitReady();
    return agent;
  };
  return { server, api: kube.api, start };
}

function notes(agent: Program): string[] {
  return agent.lines.filter((line) => line.includes('deletion cost'));
}

test(
  'an agent in a pod keeps its deletion cost and tells of its end by an event, and without the right to it says so once',
  scoped(async (scope) => {
    const { server, api, start } = await planeOfPods(scope);
    const agent = await start();
    await until(() => api.costs.get(PATCHED_POD)?.cost === '0', { what: 'the deletion cost' });
    assert.deepEqual(notes(agent), []);
    const target = await echo(scope);
    const cut = await dial(scope, server, 'connect', target.authority);
    cut.on('error', () => {});
    await carries(cut);
    agent.signal('SIGTERM');
    await agent.ended();
    await closed(cut);
    const events = api.seen.filter(({ call }) => call === 'POST /api/v1/namespaces/isthmus-agent/events');
    assert.deepEqual(
      events.map(({ body }) => (body as { readonly message: string }).message),
      ['agent-1 ended with 1 tunnel open, which was cut: isthmus cuts says whose'],
    );
    api.intercept = (_request, response) => {
      failure(response, 403, 'Forbidden');
      return true;
    };
    const without = await start();
    await until(() => notes(without).length > 0, { what: 'a line on the deletion cost' });
    await carries(await dial(scope, server, 'connect', target.authority));
    assert.match(notes(without).join('\n'), /"level":"info".*may not patch pods\/status/);
  }),
);

test(
  "an agent's deletion cost follows its tunnels, a minute later at most",
  { skip: unlessSlow(), timeout: 240_000 },
  scoped(async (scope) => {
    const { server, api, start } = await planeOfPods(scope);
    await start();
    const cost = (wanted: string) =>
      until(() => api.costs.get(PATCHED_POD)?.cost === wanted, { what: `the cost ${wanted}`, deadline: 70_000 });
    await cost('0');
    const target = await echo(scope);
    const tunnels = await Promise.all([1, 2, 3, 4, 5].map(() => dial(scope, server, 'connect', target.authority)));
    await cost('4');
    for (const tunnel of tunnels) tunnel.resume().end();
    await cost('0');
    assert.equal(api.calls.length, 3);
  }),
);

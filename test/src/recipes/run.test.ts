import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startRedis } from '@isthmus/directory/testing/servers';
import { echo, grpcThrough, type Scope, scoped, tunnelThrough, until, type Via, within } from '../harness/index.ts';
import { kustomize, noKubectl } from '../k8s/manifests.ts';
import { socket } from '../k8s/rendered.ts';
import { COMMAND_LINES, type CommandLine } from './command-lines.ts';
import { argsOf, commandLinesOf } from './objects.ts';
import { hold, run } from './run.ts';

const REVIEW = 'POST /apis/authentication.k8s.io/v1/tokenreviews';

function linesOf(recipe: string): CommandLine[] {
  const others = COMMAND_LINES.filter((line) => line.recipe === recipe);
  return others.length > 0 ? others : commandLinesOf(recipe);
}

/** Longer than an agent with one session waits for a server that hung up, and a caller's end for an agent that does not come back. */
const AWAY_MS = 6000;

/** Dials as the recipe's API server does, and sends a line there and back. */
async function carries(scope: Scope, via: Via): Promise<void> {
  await echoes(await through(scope, 'uds' in via ? 'grpc' : 'connect', via, (await echo(scope)).authority), 'there');
}

function through(scope: Scope, protocol: string, via: Via, destination: string): Promise<Duplex> {
  if (protocol === 'grpc' && 'uds' in via) return grpcThrough(scope, via, destination);
  return tunnelThrough(scope, { via, destination });
}

async function echoes(tunnel: Duplex, word: string): Promise<void> {
  const first = once(tunnel, 'data');
  tunnel.resume().write(`${word} and back\n`);
  const [answer] = await within(first, { what: 'an echo' });
  assert.equal(String(answer), `${word} and back\n`);
}

for (const recipe of ['kubernetes-io', 'kamaji', 'k0s'] as const) {
  test(
    `${recipe}: server and agents with its arguments carry a dial by gRPC, and the API server reviews the agents' token`,
    scoped(async (scope) => {
      const { vias, calls } = await run(scope, linesOf(recipe));
      for (const via of vias) await carries(scope, via);
      assert.ok(calls.includes(REVIEW), calls.join('\n'));
    }),
  );
}

test(
  'hypershift: server and agents with its arguments carry a dial by CONNECT over mutual TLS',
  scoped(async (scope) => {
    const { vias, agents } = await run(scope, linesOf('hypershift'));
    assert.equal(agents.length, 2);
    for (const via of vias) await carries(scope, via);
  }),
);

/** The server of one of kubeadm-ha's folders on three nodes, and its agent. */
function threeNodes(folder: string): CommandLine[] {
  const [server] = commandLinesOf('kubeadm-ha', `/${folder}/`);
  const agent = kustomize('k8s/recipes/kubeadm-ha').find(({ kind }) => kind === 'Deployment');
  assert.ok(server && agent);
  const servers = ['one', 'two', 'three'].map((node) => {
    return { ...server, args: server.args.map((arg) => arg.replace('node-name', node)) };
  });
  const args = argsOf(agent.spec.template.spec.containers[0]);
  return [...servers, { recipe: 'kubeadm-ha', program: 'proxy-agent', args }];
}

test(
  'kubeadm-ha: without Redis, an agent behind the load balancer reaches three servers, and each carries a dial',
  { skip: noKubectl },
  scoped(async (scope) => {
    const { vias } = await run(scope, threeNodes('node'));
    assert.equal(vias.length, 3);
    for (const via of vias) await carries(scope, via);
  }),
);

test(
  'kubeadm-ha: dials and tunnels wait in isthmus hold while the only server is away, as long as a kubelet takes to replace it',
  { skip: noKubectl },
  scoped(async (scope) => {
    const [server, , , agent] = threeNodes('node') as [CommandLine, CommandLine, CommandLine, CommandLine];
    const { vias, servers, restart } = await run(scope, [server, agent]);
    const { program, via } = await hold(scope, argsOf(socket.container), vias[0] as Via);
    const destination = (await echo(scope)).authority;
    const tunnels = await Promise.all(
      ['grpc', 'connect'].map((protocol) => through(scope, protocol, via, destination)),
    );
    for (const tunnel of tunnels) await echoes(tunnel, 'before');
    await servers[0]?.kill();
    const late = through(scope, 'grpc', via, destination);
    await program.waitForLog(({ msg }) => `${msg}`.startsWith('no gateway can be reached'), { what: 'the loss' });
    await delay(AWAY_MS);
    await restart(0);
    for (const tunnel of [...tunnels, await late]) await echoes(tunnel, 'after');
  }),
);

test(
  'kubeadm-ha: as one plane, an agent has sessions with two servers, and all three carry a dial',
  { skip: noKubectl },
  scoped(async (scope) => {
    const redis = await startRedis();
    scope.defer(() => redis.stop());
    // This Redis has neither TLS nor a password.
    const own = { 'redis-url': redis.url, 'redis-ca-cert': '', 'redis-password-file': '' };
    const { vias, agents } = await run(scope, threeNodes('plane'), own);
    for (const via of vias) await carries(scope, via);
    await until(async () => / connected to 2 of 2\b/.test((await agents[0]?.get('/readyz?verbose'))?.body ?? ''), {
      what: 'two sessions',
    });
  }),
);

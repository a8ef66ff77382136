import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  freePort,
  newTrust,
  Relay,
  type Scope,
  scoped,
  sharedByFile,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';

const api = sharedByFile((scope) => KubernetesApi.start(scope));

/** A name in the API server's certificate. */
const NAME = 'kubernetes.default.svc';

/** A hub that leads to the API server, by name and through an agent behind a relay. */
async function ways(scope: Scope) {
  const cluster = await api();
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'api-server-name': NAME, 'api-server': cluster.address });
  const relay = await new Relay([server.agentPort]).listen();
  scope.defer(() => relay[Symbol.asyncDispose]());
  const port = await freePort();
  const agent = await startAgent(scope, trust, relay.port, { 'api-server-listen': `127.0.0.1:${port}` });
  await agent.waitReady();
  const at = (at: number) => [
    ...[`--server=https://127.0.0.1:${at}`, `--tls-server-name=${NAME}`],
    ...['--insecure-skip-tls-verify=false', `--certificate-authority=${cluster.authority}`],
  ];
  return { cluster, server, relay, byName: at(server.agentPort), byAddress: at(port) };
}

function configMap(name: string) {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' }, data: { of: name } };
}

describe("kubectl reaches an API server at the hub's port for agents", { skip: noApiServer }, () => {
  for (const way of ['byName', 'byAddress'] as const)
    test(
      `${way === 'byName' ? 'by its name' : 'through an agent'}: it reads, writes and watches`,
      { timeout: 300_000 },
      scoped(async (scope) => {
        const { cluster, [way]: to } = await ways(scope);
        const version = JSON.parse(await cluster.kubectl(['get', '--raw=/version', ...to])) as { gitVersion: string };
        assert.match(version.gitVersion, /^v1\./);
        const watched = cluster.watch(scope, ['get', 'configmaps', '--watch', '--output=name', ...to]);
        await cluster.kubectl(
          ['apply', '--server-side', '-f', '-', ...to],
          JSON.stringify(configMap(`${way.toLowerCase()}-1`)),
        );
        const saw = (name: string) => watched.said.includes(`configmap/${name}`);
        await until(() => saw(`${way.toLowerCase()}-1`), { what: () => `an event of the watch: ${watched.said}` });
        // 1 MiB in one object: more than any window at first.
        const big = { ...configMap(`${way.toLowerCase()}-big`), data: { of: 'x'.repeat(1_000_000) } };
        await cluster.kubectl(['create', '-f', '-', ...to], JSON.stringify(big));
        const read = await cluster.kubectl(['get', 'configmap', `${way.toLowerCase()}-big`, '--output=json', ...to]);
        assert.equal((JSON.parse(read) as { data: { of: string } }).data.of.length, 1_000_000);
        assert.ok(watched.running);
      }),
    );

  test(
    "a watch through an agent goes on when the agent's links are lost",
    { timeout: 300_000 },
    scoped(async (scope) => {
      const { cluster, relay, byAddress } = await ways(scope);
      const watched = cluster.watch(scope, ['get', 'configmaps', '--watch', '--output=name', ...byAddress]);
      for (const [index, lose] of [() => {}, () => relay.reset(), () => relay.strand()].entries()) {
        lose();
        const name = `lost-${index}`;
        await cluster.apply(configMap(name));
        await until(() => watched.said.includes(`configmap/${name}`), { what: () => `${name}: ${watched.said}` });
      }
      assert.ok(watched.running);
    }),
  );
});

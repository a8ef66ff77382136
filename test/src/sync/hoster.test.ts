import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { hosterCommands } from '../cluster/recipe.ts';
import { ROOT, scoped, tempDir } from '../harness/index.ts';
import { helmProgram } from '../k8s/chart.ts';
import { clusterApiDefinition, clusterctl, KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { anyDefinition, newCa, ofClusterApi, secretOf } from './objects.ts';

const COMMAND_MS = 120_000;

interface Part {
  readonly kind?: string;
  readonly metadata: { readonly name: string };
  readonly spec: { readonly secretName?: string };
}

/** Names of what pods need before they start, by kind. */
function neededBy(pods: unknown): { readonly secrets: string[]; readonly configMaps: string[] } {
  const text = JSON.stringify(pods);
  const all = (pattern: RegExp) => [...new Set([...text.matchAll(pattern)].map(([, name]) => `${name}`))].sort();
  return {
    secrets: all(/"(?:secretName|secretKeyRef":\{"key":"[^"]*","name)":"([^"]+)"/g),
    configMaps: all(/"configMap":\{[^{}[\]]*(?:\[[^\]]*\])?[^{}[\]]*"name":"([^"]+)"/g),
  };
}

describe('The commands of "From a management cluster" in docs/TENANTS.md', { skip: noApiServer }, () => {
  test(
    'run as they stand, and leave out nothing that a pod needs to start',
    scoped(async (scope) => {
      const [kube, prod] = [await KubernetesApi.start(scope), await KubernetesApi.start(scope)];
      const dir = await tempDir(scope);
      await mkdir(join(dir, 'bin'));
      await symlink(join(ROOT, 'k8s'), join(dir, 'k8s'));
      const programs = { helm: await helmProgram(), kubectl: kube.program, clusterctl: await clusterctl() };
      for (const [name, path] of Object.entries(programs)) await symlink(path, join(dir, 'bin', name));
      await kube.apply(anyDefinition('cert-manager.io', 'Certificate', 'certificates', 'v1'));
      await kube.apply(
        await clusterApiDefinition('cluster.x-k8s.io_clusters'),
        await clusterApiDefinition('controlplane.cluster.x-k8s.io_kubeadmcontrolplanes'),
      );
      await kube.established();
      // The chart brings it.
      await kube.kubectl(['delete', 'crd', 'tenants.isthmus.dev']);
      await kube.apply(...ofClusterApi(readFileSync(prod.kubeconfig, 'utf8')));
      /** What cert-manager does with its objects, which is not here. */
      const issue = async () => {
        const list = await kube.kubectl(['get', 'certificates', '-n', 'isthmus-plane', '-o', 'json']).catch(() => '');
        const items: Part[] = list === '' ? [] : JSON.parse(list).items;
        for (const { spec: certificate } of items) {
          const values = { 'ca.crt': await newCa(), 'tls.crt': 'x', 'tls.key': 'x' };
          await kube.apply(secretOf('isthmus-plane', certificate.secretName ?? '', values, {}));
        }
      };
      const env = {
        ...process.env,
        KUBECONFIG: kube.kubeconfig,
        PATH: `${join(dir, 'bin')}:${process.env.PATH}`,
        // It asks for newer releases otherwise.
        ...{ XDG_CONFIG_HOME: dir, CLUSTERCTL_DISABLE_VERSIONCHECK: 'true' },
      };
      const all = hosterCommands();
      // The last one needs a node with a kubelet: npm run cluster -- --way hoster has one.
      for (const [index, command] of all.slice(0, -1).entries()) {
        const run = promisify(execFile)('bash', ['-euo', 'pipefail', '-c', command], {
          cwd: dir,
          env,
          timeout: COMMAND_MS,
        });
        if (index > 0) await issue();
        await run;
      }
      for (const [at, namespace] of [
        [kube, 'isthmus-plane'],
        [prod, 'isthmus-agent'],
      ] as const) {
        const names = async (kind: string) =>
          (await at.kubectl(['get', kind, '-n', namespace, '-o', 'jsonpath={.items[*].metadata.name}'])).split(' ');
        const pods = JSON.parse(await at.kubectl(['get', 'deployments', '-n', namespace, '-o', 'json']));
        const needed = neededBy(pods.items.map(({ spec: { template } }: { spec: { template: object } }) => template));
        assert.ok(namespace === 'isthmus-agent' || needed.secrets.includes('redis-auth'), `${needed.secrets}`);
        assert.ok(namespace === 'isthmus-plane' || needed.configMaps.includes('hub-ca'), `${needed.configMaps}`);
        // Of each namespace, by a controller that is not here.
        const [secrets, maps] = [await names('secrets'), [...(await names('configmaps')), 'kube-root-ca.crt']];
        assert.deepEqual(
          needed.secrets.filter((name) => !secrets.includes(name)),
          [],
          `secrets in ${namespace}`,
        );
        assert.deepEqual(
          needed.configMaps.filter((name) => !maps.includes(name)),
          [],
          `config maps in ${namespace}`,
        );
      }
      const patched = await kube.kubectl([
        'get',
        '-n',
        'acme',
        'kubeadmcontrolplane',
        'prod-control-plane',
        '-o',
        'json',
      ]);
      assert.match(patched, /egress-selector-config-file/);
    }),
  );
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { startRedis } from '@isthmus/directory/testing/servers';
import { run as isthmus, type Terminal } from '@isthmus/isthmus';
import {
  echo,
  eventually,
  freePort,
  newTrust,
  type Program,
  type ProgramName,
  type Scope,
  scoped,
  startProgram,
  tunnelThrough,
  within,
} from '../harness/index.ts';
import { noApiServer, objects, readAsApiServer } from '../k8s/chart.ts';
import { composed, kustomize, type Manifest, noKubectl, type Workload, workloads } from '../k8s/manifests.ts';
import { kubeApi } from '../plane/kube-api.ts';
import { argsOf } from './objects.ts';
import { flagValue, move } from './run.ts';

async function printed(...args: string[]): Promise<string> {
  const { status, text } = await ran(['certs', '-o', 'kubernetes', ...args]);
  assert.equal(status, 0);
  return text;
}

async function ran(args: string[]): Promise<{ status: number; text: string }> {
  let text = '';
  const terminal: Terminal = {
    args,
    env: {},
    interactive: false,
    colours: false,
    interrupted: new AbortController().signal,
    out: (part) => {
      text += part;
    },
    err: () => {},
    columns: () => 120,
  };
  return { status: await isthmus(terminal), text };
}

test('an API server reads the secrets of each recipe as they are meant', { skip: noApiServer }, async () => {
  for (const args of [
    ['--recipe', 'plane'],
    ['--recipe', 'server'],
    ['--recipe', 'tenant', '--tenant', 'acme', '--host', 'acme.plane.example'],
  ]) {
    assert.deepEqual(await readAsApiServer('decode', await printed(...args)), [], args.join(' '));
  }
});

type Stored = Manifest & { readonly stringData?: Readonly<Record<string, string>> };

/** Puts what a pod mounts where it mounts it, below a root directory. Returns the names of secrets and config maps that nobody made. */
async function mount(root: string, { pod, container }: Workload, stored: readonly Stored[]): Promise<string[]> {
  const missing: string[] = [];
  for (const { name, mountPath } of container.volumeMounts) {
    const volume = pod.volumes.find((each) => each.name === name);
    const source = volume?.secret?.secretName ?? volume?.configMap?.name;
    await mkdir(join(root, mountPath), { recursive: true });
    if (source === undefined) continue;
    const object = stored.find(({ metadata }) => metadata.name === source);
    if (!object) missing.push(source);
    for (const [key, text] of Object.entries(object?.stringData ?? object?.data ?? {}))
      await writeFile(join(root, mountPath, key), text);
  }
  return missing;
}

test(
  'a plane and its agents start from the printed secrets alone, carry a dial, and an operator in a gateway sees all',
  { skip: noKubectl },
  scoped(async (scope: Scope) => {
    const trust = await newTrust(scope);
    const kube = await kubeApi(scope, trust);
    kube.trust('a-token-of-an-agent', 'isthmus-agent:agent');
    const redis = await startRedis();
    scope.defer(() => redis.stop());
    const stored = objects(await printed('--host', '127.0.0.1,localhost')) as Stored[];
    const plane = workloads([...composed('base/plane', 'components/operators'), ...kustomize('k8s/base/agent')]);
    const agentPort = await freePort();
    const start = async (name: string, added: Readonly<Record<string, string | number>>): Promise<Program> => {
      const workload = plane.find((each) => each.name === name);
      assert.ok(workload, name);
      const root = join(trust.dir, name);
      const missing = await mount(root, workload, stored);
      assert.deepEqual(missing, name === 'hub' ? ['hub-kubeconfig'] : []);
      for (const [flag, text] of [['service-account-token-path', 'a-token-of-an-agent']] as const) {
        const path = flagValue(workload.container.args, flag);
        if (path) await mkdir(dirname(join(root, path)), { recursive: true });
        if (path) await writeFile(join(root, path), text);
      }
      const hosts = new Map([['proxy-server-host', '127.0.0.1']]);
      const args = move(argsOf(workload.container), {
        root,
        ports: new Map([['proxy-server-port', agentPort]]),
        hosts,
      });
      const flags = { ...added, ...(name === 'agent' ? {} : { 'redis-url': redis.url, 'redis-password-file': '' }) };
      const health = name === 'agent' ? 'health-server-port' : 'health-port';
      const port = await freePort();
      const admin = name === 'agent' ? 'admin-server-port' : 'admin-port';
      const program = workload.container.command[0] as ProgramName;
      const adminPort = await freePort();
      const pod = name === 'agent' ? {} : { 'server-id': name, 'advertise-admin-address': `127.0.0.1:${adminPort}` };
      return startProgram(scope, program, {
        args,
        flags: { ...flags, ...pod, [health]: port, [admin]: adminPort },
        healthPort: port,
      });
    };
    const peerPort = await freePort();
    const callers = await freePort();
    const programs = await Promise.all([
      start('hub', {
        kubeconfig: kube.kubeconfig,
        'agent-port': agentPort,
        'peer-port': peerPort,
        'advertise-address': `127.0.0.1:${peerPort}`,
      }),
      start('gateway', { 'server-port': callers }),
      start('agent', {}),
    ]);
    await Promise.all(programs.map((program) => program.waitReady()));
    const api = await shownBy(trust.dir, stored);
    const destination = (await echo(scope)).authority;
    const tunnel = await tunnelThrough(scope, { via: { port: callers, ...api }, destination });
    const first = once(tunnel, 'data');
    tunnel.resume().write('there and back\n');
    const [answer] = await within(first, { what: 'an echo' });
    assert.equal(String(answer), 'there and back\n');
    const env = plane.find(({ name }) => name === 'gateway')?.container.env as readonly {
      name: string;
      value?: string;
    }[];
    const shown = ['ca', 'cert', 'key'].flatMap((name) => {
      const path = env.find((each) => each.name === `ISTHMUS_${name.toUpperCase()}`)?.value ?? '';
      return [`--${name}`, join(trust.dir, 'gateway', path)];
    });
    await eventually(async () => {
      const address = `127.0.0.1:${programs[1]?.adminPort}`;
      const { status, text } = await ran(['status', '--address', address, ...shown, '-o', 'json']);
      const { members } = JSON.parse(text) as { members: { member: string; ready?: boolean }[] };
      const ready = members.map(({ member, ready: is }) => `${member} ${is}`).sort();
      assert.deepEqual([status, ready], [0, ['gateway true', 'hub true']]);
    });
  }),
);

/** The files of the secret that an API server shows. */
async function shownBy(dir: string, stored: readonly Stored[]) {
  const data = stored.find(({ metadata }) => metadata.name === 'kube-apiserver-tls')?.stringData ?? {};
  for (const [key, text] of Object.entries(data)) await writeFile(join(dir, key), text);
  return { ca: join(dir, 'ca.crt'), identity: { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') } };
}

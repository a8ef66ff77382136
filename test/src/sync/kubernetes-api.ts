import { execFile, spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { KUBERNETES_FACTS, VERSION } from '../cluster/settings.ts';
import { goBuilt } from '../harness/go-program.ts';
import { freePort, goMissing, Program, ROOT, type Scope, tempDir, unlessSlow, until } from '../harness/index.ts';

const ETCD_ENV = { ...process.env, ETCDCTL_API: '3' };

/** Why no API server runs here, or false. It is built from Kubernetes' Go modules, which takes ten minutes, so it runs with the slow tests. */
export const noApiServer: string | false =
  unlessSlow() ||
  goMissing() ||
  (versionOf('etcd', '--version') === '' ? 'etcd is not installed: apt-get install etcd-server' : false);

/** What restores a snapshot; undefined if nothing does here. From etcd 3.6 on, etcdctl only takes them. */
function restorer(): 'etcdutl' | 'etcdctl' | undefined {
  if (versionOf('etcdutl') !== '') return 'etcdutl';
  return /\b3\.[0-5]\./.test(versionOf('etcdctl')) ? 'etcdctl' : undefined;
}

/** Why no API server comes back with a snapshot here, or false. */
export const noSnapshots: string | false =
  noApiServer ||
  (versionOf('etcdctl') === '' || restorer() === undefined
    ? 'etcdctl or, from etcd 3.6 on, etcdutl is not installed: apt-get install etcd-client'
    : false);

/** Why no API server comes back with a snapshot and lifted versions here, or false. */
export const noBumps: string | false =
  noSnapshots || (restorer() === 'etcdutl' ? false : 'etcdutl is not installed: go install go.etcd.io/etcd/etcdutl/v3');

function versionOf(program: string, version = 'version'): string {
  const { status, stdout } = spawnSync(program, [version], { env: ETCD_ENV });
  return status === 0 ? String(stdout) : '';
}

async function etcd(program: 'etcdutl' | 'etcdctl' = 'etcdctl', ...args: readonly string[]): Promise<void> {
  await promisify(execFile)(program, args, { env: ETCD_ENV, timeout: KUBECTL_MS });
}

const TOKEN = 'of-the-tests-own-administrator';
const KUBECTL_MS = 120_000;

const CLUSTER_API = { module: 'sigs.k8s.io/cluster-api', own: join(ROOT, 'test/cluster/cluster-api') };
const DOWNLOAD_MS = 300_000;

/** A definition of Cluster API, out of its Go module. @param name of its file, without the ending: `cluster.x-k8s.io_clusters` */
export async function clusterApiDefinition(name: string): Promise<object> {
  const { Dir: cwd } = await clusterApi();
  const [path = ''] = globSync(`**/config/crd/bases/${name}.yaml`, { cwd });
  return parse(readFileSync(join(cwd, path), 'utf8'));
}

/** The path of Cluster API's own command line, which is built once. */
export async function clusterctl(): Promise<string> {
  const { module, own } = CLUSTER_API;
  return goBuilt(`clusterctl-${(await clusterApi()).Version}`, own, `${module}/cmd/clusterctl`);
}

async function clusterApi(): Promise<{ readonly Dir: string; readonly Version: string }> {
  const { module, own: cwd } = CLUSTER_API;
  const { stdout } = await promisify(execFile)('go', ['mod', 'download', '-json', module], {
    timeout: DOWNLOAD_MS,
    cwd,
  });
  return JSON.parse(stdout);
}

interface Programs {
  readonly apiServer: string;
  readonly kubectl: string;
}

interface Ports {
  readonly etcd: number;
  readonly peer: number;
  readonly api: number;
}

interface ApiOptions {
  /** The largest database of etcd. */
  readonly quotaBytes?: number;
}

/** A Kubernetes API without anything that runs in a cluster: etcd, kube-apiserver and kubectl. */
export class KubernetesApi {
  readonly kubeconfig: string;
  readonly #dir: string;
  readonly #scope: Scope;
  readonly #programs: Programs;
  readonly #ports: Ports;
  readonly #quota: readonly string[];
  #etcd: Program | undefined;
  #apiServer: Program | undefined;

  private constructor(scope: Scope, dir: string, programs: Programs, ports: Ports, { quotaBytes }: ApiOptions) {
    this.#quota = quotaBytes === undefined ? [] : [`--quota-backend-bytes=${quotaBytes}`];
    this.#scope = scope;
    this.#dir = dir;
    this.#programs = programs;
    this.#ports = ports;
    this.kubeconfig = join(dir, 'kubeconfig');
  }

  /** Starts it, with the definition of `Tenant` objects. */
  static async start(scope: Scope, options: ApiOptions = {}): Promise<KubernetesApi> {
    const module = join(ROOT, 'test/cluster/kubernetes');
    const built = (name: string) =>
      goBuilt(`${name}-${VERSION}`, module, `k8s.io/kubernetes/cmd/${name}`, KUBERNETES_FACTS);
    const programs = { apiServer: await built('kube-apiserver'), kubectl: await built('kubectl') };
    const ports = { etcd: await freePort(), peer: await freePort(), api: await freePort() };
    const api = new KubernetesApi(scope, await tempDir(scope), programs, ports, options);
    await api.#prepare();
    await api.up();
    await api.kubectl(['apply', '--server-side', '-f', join(ROOT, 'k8s/crd/tenants.yaml')]);
    await api.established();
    return api;
  }

  /** The path of kubectl. */
  get program(): string {
    return this.#programs.kubectl;
  }

  /** `host:port` of the API server. */
  get address(): string {
    return `127.0.0.1:${this.#ports.api}`;
  }

  /** What its certificate is trusted by. It is for `kubernetes.default.svc`. */
  get authority(): string {
    return `${this.#dir}/certificates/apiserver.crt`;
  }

  /** Waits until all definitions are served. kubectl fails on one that has no conditions yet. */
  async established(): Promise<void> {
    const wait = () =>
      this.kubectl(['wait', '--for=condition=Established', 'crd', '--all']).then(
        () => true,
        () => false,
      );
    await until(wait, { what: 'all definitions' });
  }

  async up(): Promise<void> {
    const { etcd, peer, api } = this.#ports;
    const dir = this.#dir;
    const [client, peers] = [`http://127.0.0.1:${etcd}`, `http://127.0.0.1:${peer}`];
    this.#etcd = this.#scope.use(
      new Program('etcd', [
        ...(['etcd', `--data-dir=${dir}/etcd`, '--log-level=error'] as const),
        ...this.#quota,
        ...[`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`, `--listen-peer-urls=${peers}`],
      ]),
    );
    this.#apiServer = this.#scope.use(
      new Program('kube-apiserver', [
        ...([this.#programs.apiServer, `--etcd-servers=${client}`, '--bind-address=127.0.0.1'] as const),
        ...[`--secure-port=${api}`, `--cert-dir=${dir}/certificates`, `--token-auth-file=${dir}/tokens.csv`],
        ...['--authorization-mode=RBAC', '--service-cluster-ip-range=10.96.0.0/24'],
        ...['--service-account-issuer=https://kubernetes.default.svc.cluster.local'],
        ...[`--service-account-key-file=${dir}/sa.pub`, `--service-account-signing-key-file=${dir}/sa.key`],
        // There is no controller that makes namespaces' service accounts.
        '--disable-admission-plugins=ServiceAccount',
      ]),
    );
    const ready = () =>
      this.kubectl(['get', '--raw=/readyz']).then(
        () => true,
        () => false,
      );
    await until(ready, { deadline: 120_000, what: () => `an API server that is ready${this.#apiServer?.tail ?? ''}` });
  }

  /** Kills it: API server and etcd. */
  async down(): Promise<void> {
    await this.#apiServer?.kill();
    await this.#etcd?.kill();
  }

  /** Takes a snapshot of etcd while it runs. */
  async backUp(): Promise<void> {
    await etcd('etcdctl', 'snapshot', 'save', `${this.#dir}/backup`, `--endpoints=127.0.0.1:${this.#ports.etcd}`);
  }

  /** Brings it back, which is down, with the last snapshot. @param flags of the restore */
  async restore(...flags: readonly string[]): Promise<void> {
    await rm(`${this.#dir}/etcd`, { recursive: true });
    await etcd(restorer(), 'snapshot', 'restore', `${this.#dir}/backup`, `--data-dir=${this.#dir}/etcd`, ...flags);
    await this.up();
  }

  /**
   * Runs kubectl, and returns what it prints.
   * @param input for `-f -`
   * @param inside the command that runs it in another place
   */
  async kubectl(args: readonly string[], input = '', inside: readonly string[] = []): Promise<string> {
    const [command, ...all] = this.#kubectl(args, inside);
    const child = spawn(command, all, { stdio: ['pipe', 'pipe', 'pipe'], timeout: KUBECTL_MS });
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    const status = new Promise<number | null>((resolve) => child.once('close', resolve));
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
    if ((await status) !== 0) throw new Error(`kubectl ${args.join(' ')}: ${err}`);
    return out;
  }

  /** Runs kubectl until the scope ends. @returns it, and what it has printed so far */
  watch(
    scope: Scope,
    args: readonly string[],
    inside: readonly string[] = [],
  ): { readonly running: boolean; readonly said: string } {
    const [command, ...all] = this.#kubectl(args, inside);
    const child = spawn(command, all);
    scope.defer(() => void child.kill());
    const watched = { running: true, said: '' };
    const hear = (chunk: Buffer) => {
      watched.said += chunk;
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('close', () => {
      watched.running = false;
    });
    return watched;
  }

  #kubectl(args: readonly string[], inside: readonly string[]): [string, ...string[]] {
    return [...inside, this.#programs.kubectl, `--kubeconfig=${this.kubeconfig}`, ...args] as [string, ...string[]];
  }

  /** Creates or changes objects, all in one call. */
  async apply(...objects: readonly object[]): Promise<void> {
    const list = { apiVersion: 'v1', kind: 'List', items: objects };
    await this.kubectl(['apply', '--server-side', '--force-conflicts', '-f', '-'], JSON.stringify(list));
  }

  async #prepare(): Promise<void> {
    const dir = this.#dir;
    await mkdir(`${dir}/certificates`);
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    await writeFile(`${dir}/sa.pub`, publicKey.export({ type: 'spki', format: 'pem' }));
    await writeFile(`${dir}/sa.key`, privateKey.export({ type: 'pkcs8', format: 'pem' }));
    await writeFile(`${dir}/tokens.csv`, `${TOKEN},admin,admin,"system:masters"\n`);
    const cluster = { server: `https://127.0.0.1:${this.#ports.api}`, 'insecure-skip-tls-verify': true };
    const config = {
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'test', user: { token: TOKEN } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    };
    await writeFile(this.kubeconfig, JSON.stringify(config));
  }
}

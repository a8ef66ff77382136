import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { CertificatePool, printable } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { KUBE } from './defaults.ts';

/** How to reach an API server, and the credentials. PEM texts, not paths. */
export interface KubeConnection {
  readonly server: URL;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /** The name to expect in the server's certificate, if it is not the host. */
  readonly serverName?: string;
  /** When the credentials expire, in milliseconds since 1970. Unset: not known. */
  readonly expires?: number;
  /** Call when the server has rejected the credentials: the next reading gets others, if there can be any. */
  readonly rejected?: () => void;
  /** Accepts any certificate. Only for tests of a cluster, as in kubectl. */
  readonly insecureSkipTlsVerify: boolean;
}

/** Reads the connection again, because tokens and certificates are rotated in place. Rejects with what is wrong and where. */
export type KubeConnectionSource = () => Promise<KubeConnection>;

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Reads what every pod gets: the API server from the environment, and the token and CA of its service account from files. */
export function inClusterConnection(
  env: NodeJS.ProcessEnv = process.env,
  directory: string = SERVICE_ACCOUNT,
): KubeConnectionSource {
  return async () => {
    const host = env.KUBERNETES_SERVICE_HOST;
    const port = env.KUBERNETES_SERVICE_PORT;
    if (!host || !port) {
      throw new Error(
        'no --kubeconfig, and not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set',
      );
    }
    const authority = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    try {
      const token = await readToken(join(directory, 'token'));
      const path = join(directory, 'ca.crt');
      const ca = checkedCertificates(await readFile(path, 'utf8'), path);
      return { server: parseServer(`https://${authority}`, 'environment'), ca, token, insecureSkipTlsVerify: false };
    } catch (cause) {
      throw new Error(`the pod's service account: ${inWords(cause)}`, { cause });
    }
  };
}

interface KubeconfigOptions {
  /**
   * Whether the file may name a program to run for credentials (`exec`). Default: false. Who may write the file can then run programs as
   * this process: not for files of tenants.
   */
  readonly exec?: boolean;
}

/** Reads the cluster and user of a kubeconfig file's current context. */
export function kubeconfigFile(path: string, { exec = false }: KubeconfigOptions = {}): KubeConnectionSource {
  const plugins = exec ? new ExecCredentials() : undefined;
  return async () => {
    try {
      return await read(path, plugins);
    } catch (cause) {
      throw new Error(`kubeconfig ${path}: ${inWords(cause)}`, { cause });
    }
  };
}

/** A part of a kubeconfig: any YAML mapping. It is read field by field, because people write these files. */
type Part = Readonly<Record<string, unknown>>;

/** Ways to log in that Kubernetes itself has given up, or that would need rights of their own. */
const UNSUPPORTED_USER = ['username', 'password', 'as'];

async function read(path: string, plugins: ExecCredentials | undefined): Promise<KubeConnection> {
  // Loaded only if there is such a file, because it takes 2 MB.
  const { parse } = await import('yaml');
  const config = asPart(parse(await readFile(path, 'utf8')), 'the file');
  const current = requiredText(config, 'current-context', 'the file');
  const context = named(config, 'contexts', 'context', current);
  const clusterName = requiredText(context, 'cluster', `context ${current}`);
  const cluster = named(config, 'clusters', 'cluster', clusterName);
  const userName = requiredText(context, 'user', `context ${current}`);
  const user = named(config, 'users', 'user', userName);
  const dir = dirname(path);
  const inCluster = `cluster ${clusterName}`;
  if (text(cluster, 'proxy-url')) throw new Error(`${inCluster}: proxy-url is not supported`);
  const ca = await material(cluster, 'certificate-authority', dir, inCluster);
  const serverName = text(cluster, 'tls-server-name');
  const where = `user ${userName}`;
  const own = await credentials(user, dir, where);
  // As in client-go: a plugin is not asked if the file has credentials of its own.
  const plugin = Object.keys(own).length === 0 && user.exec !== undefined && user.exec !== null;
  return {
    server: parseServer(requiredText(cluster, 'server', inCluster), inCluster),
    insecureSkipTlsVerify: cluster['insecure-skip-tls-verify'] === true,
    ...(ca === undefined ? {} : { ca: checkedCertificates(ca, `${inCluster}: certificate-authority`) }),
    ...(serverName === undefined ? {} : { serverName }),
    ...own,
    ...(plugin && (await fromPlugin(user.exec, plugins, { dir, cluster, ca, where }))),
  };
}

interface PluginPlace {
  readonly dir: string;
  readonly cluster: Part;
  readonly ca: string | undefined;
  readonly where: string;
}

async function fromPlugin(
  exec: unknown,
  plugins: ExecCredentials | undefined,
  { dir, cluster, ca, where }: PluginPlace,
) {
  if (!plugins) {
    const instead = 'use a client certificate, token or tokenFile';
    throw new Error(
      `${where}: exec is not allowed in a tenant's kubeconfig, because it runs a program here: ${instead}`,
    );
  }
  const info = {
    server: cluster.server,
    ...(cluster['tls-server-name'] !== undefined && { 'tls-server-name': cluster['tls-server-name'] }),
    ...(cluster['insecure-skip-tls-verify'] === true && { 'insecure-skip-tls-verify': true }),
    ...(ca !== undefined && { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
    config: execConfig(cluster),
  };
  try {
    return { ...(await plugins.get(execPlugin(exec, dir, info))), rejected: () => plugins.forget() };
  } catch (cause) {
    throw new Error(`${where}: ${inWords(cause)}`, { cause });
  }
}

/** The cluster's own settings for plugins. */
function execConfig({ extensions }: Part): unknown {
  if (!Array.isArray(extensions)) return null;
  const found = extensions.find((each) => asPart(each, 'extensions').name === 'client.authentication.k8s.io/exec');
  return found === undefined ? null : (asPart(found, 'extensions').extension ?? null);
}

async function credentials(user: Part, dir: string, where: string): Promise<Partial<KubeConnection>> {
  if (user['auth-provider'] !== undefined) {
    throw new Error(
      `${where}: auth-provider is gone from Kubernetes since 1.26. Use exec with the provider's plugin (gke-gcloud-auth-plugin, kubelogin, aws eks get-token), a client certificate, token or tokenFile`,
    );
  }
  const unsupported = UNSUPPORTED_USER.find((field) => user[field] !== undefined);
  if (unsupported !== undefined) {
    throw new Error(`${where}: ${unsupported} is not supported, use a client certificate, token or tokenFile`);
  }
  const cert = await material(user, 'client-certificate', dir, where);
  const key = await material(user, 'client-key', dir, where);
  if ((cert === undefined) !== (key === undefined)) {
    throw new Error(`${where}: client-certificate and client-key go together, one is missing`);
  }
  // A token file takes precedence over a token, as in client-go, because it is the one that is rotated.
  const tokenFile = text(user, 'tokenFile');
  const token = tokenFile === undefined ? text(user, 'token') : await readToken(resolve(dir, tokenFile));
  return {
    ...(cert === undefined || key === undefined
      ? {}
      : { cert: checkedCertificates(cert, `${where}: client-certificate`), key }),
    ...(token === undefined ? {} : { token }),
  };
}

async function readToken(path: string): Promise<string> {
  const token = (await readFile(path, 'utf8')).trim();
  if (token === '') throw new Error(`token file ${path} is empty`);
  return token;
}

/** Returns `field-data` decoded from base64, or the file that `field` names, relative to the kubeconfig. */
async function material(part: Part, field: string, dir: string, where: string): Promise<string | undefined> {
  const data = text(part, `${field}-data`);
  if (data !== undefined) {
    const pem = Buffer.from(data, 'base64').toString('utf8');
    if (!pem.includes('-----BEGIN')) throw new Error(`${where}: ${field}-data is not base64 of a PEM text`);
    return pem;
  }
  const path = text(part, field);
  return path === undefined ? undefined : readFile(resolve(dir, path), 'utf8');
}

/** Checks early what would otherwise fail at the first request, with an error that does not name the file. One certificate must be readable. */
function checkedCertificates(pem: string, where: string): string {
  const { all, skipped } = CertificatePool.of(pem);
  if (all.length > 0) return pem;
  throw new Error([`${where} is not a PEM certificate`, ...skipped].join(': '));
}

/** Parses an API server's address into a URL to which paths can be appended. */
function parseServer(server: string, where: string): URL {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') {
    throw new Error(`${where}: server ${JSON.stringify(server)} is not an http(s) URL`);
  }
  return url;
}

/** Returns the entry called `name` in a list like `clusters: [{ name, cluster: {...} }]`. */
function named(config: Part, list: string, field: string, name: string): Part {
  const entries = config[list];
  const found = Array.isArray(entries) ? entries.find((entry) => asPart(entry, list).name === name) : undefined;
  if (found === undefined) throw new Error(`${list} has no entry ${JSON.stringify(name)}`);
  // A user without credentials is written `user: {}` or omitted.
  return asPart(asPart(found, list)[field] ?? {}, `${field} ${name}`);
}

function asPart(value: unknown, where: string): Part {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${where} is not a mapping`);
  return value as Part;
}

function text(part: Part, field: string): string | undefined {
  const value = part[field];
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string') throw new Error(`${field} is not a string`);
  return value;
}

function requiredText(part: Part, field: string, where: string): string {
  const value = text(part, field);
  if (value === undefined) throw new Error(`${where} has no ${field}`);
  return value;
}

/** `exec` of a user in a kubeconfig, checked. */
export interface ExecPlugin {
  readonly apiVersion: string;
  /** A name to find in PATH, or an absolute path. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly installHint: string;
  /** The cluster, for a plugin that asks for it (`provideClusterInfo`). */
  readonly cluster?: object;
}

/** What a plugin answered. */
interface ExecCredential {
  readonly token?: string;
  readonly cert?: string;
  readonly key?: string;
  /** When to ask again, in milliseconds since 1970. Unset: when the server rejects it. */
  readonly expires?: number;
}

const API_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];

/**
 * Reads the settings of a plugin, as client-go does: a command with a slash is relative to the kubeconfig.
 * @param dir of the kubeconfig
 * @throws Error that says what is wrong with them
 */
function execPlugin(exec: unknown, dir: string, cluster: object): ExecPlugin {
  const part = asPart(exec, 'exec');
  const { apiVersion, command, args = [], env = [], interactiveMode, installHint = '', provideClusterInfo } = part;
  if (typeof apiVersion !== 'string' || !API_VERSIONS.includes(apiVersion))
    throw new Error(
      `exec: apiVersion ${JSON.stringify(apiVersion)} is not supported: want ${API_VERSIONS.join(' or ')}`,
    );
  if (typeof command !== 'string' || command === '') throw new Error('exec: command is missing');
  if (interactiveMode === 'Always')
    throw new Error('exec: interactiveMode Always needs somebody at a terminal: use a plugin that works alone');
  const words = list(args, 'exec: args');
  if (!words.every((word) => typeof word === 'string')) throw new Error('exec: args is not a list of strings');
  const variables = list(env, 'exec: env').map((each) => {
    const { name, value } = asPart(each, 'exec: env');
    if (typeof name !== 'string' || typeof value !== 'string')
      throw new Error('exec: env wants a name and a value each');
    return [name, value] as const;
  });
  return {
    apiVersion,
    command: command.includes('/') ? resolve(dir, command) : command,
    args: words as string[],
    env: Object.fromEntries(variables),
    installHint: String(installHint),
    ...(provideClusterInfo === true && { cluster }),
  };
}

function list(value: unknown, where: string): readonly unknown[] {
  if (value === null) return [];
  if (!Array.isArray(value)) throw new Error(`${where} is not a list`);
  return value;
}

/** Runs a plugin, without a shell, and reads its answer. Rejects with what the plugin did, and never with what it printed to stdout. */
export async function runPlugin(plugin: ExecPlugin): Promise<ExecCredential> {
  const { apiVersion, command, cluster } = plugin;
  try {
    const info = { kind: 'ExecCredential', apiVersion, spec: { interactive: false, ...(cluster && { cluster }) } };
    return credentialOf(await outputOf(plugin, JSON.stringify(info)), apiVersion);
  } catch (cause) {
    throw new Error(`exec plugin ${command}: ${inWords(cause)}`, { cause });
  }
}

function outputOf({ command, args, env, installHint }: ExecPlugin, info: string): Promise<string> {
  const { pluginMs } = KUBE;
  return new Promise((done, reject) => {
    // A group of its own, so that what it starts ends with it.
    const child = spawn(command, args, {
      env: { ...process.env, ...env, KUBERNETES_EXEC_INFO: info },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const out: Buffer[] = [];
    let length = 0;
    let said = '';
    const fail = (error: Error) => {
      clearTimeout(timer);
      end(child.pid);
      child.stdout.destroy();
      child.stderr.destroy();
      reject(error);
    };
    const timer = setTimeout(() => fail(new Error(`no answer within ${pluginMs / 1000} s`)), pluginMs);
    child.stdout.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length > KUBE.pluginBytes) fail(new Error(`its answer is longer than ${KUBE.pluginBytes} bytes`));
      else out.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      if (said.length < KUBE.pluginSaidCharacters) said += chunk.toString();
    });
    child.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      const hint = installHint === '' ? '' : `: ${printable(installHint.trim().slice(0, KUBE.pluginSaidCharacters))}`;
      fail(new Error(code === 'ENOENT' ? `there is no such program${hint}` : message));
    });
    child.on('close', (status, signal) => {
      if (status === 0) {
        clearTimeout(timer);
        done(Buffer.concat(out).toString());
        return;
      }
      const why = printable(said.trim().slice(0, KUBE.pluginSaidCharacters));
      fail(new Error(`it ended with ${signal ?? `status ${status}`}${why === '' ? '' : `: ${why}`}`));
    });
  });
}

function end(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

function credentialOf(output: string, apiVersion: string): ExecCredential {
  const answer = asPart(answerIn(output), 'its answer');
  if (answer.kind !== 'ExecCredential' || answer.apiVersion !== apiVersion)
    throw new Error(`its answer is not an ExecCredential of ${apiVersion}`);
  const status = asPart(answer.status, 'status in its answer');
  const [token, cert, key] = ['token', 'clientCertificateData', 'clientKeyData'].map((name) => text(status, name));
  if ((cert === undefined) !== (key === undefined))
    throw new Error('clientCertificateData and clientKeyData go together, one is missing in its answer');
  if (token === undefined && cert === undefined) throw new Error('its answer has neither a token nor a certificate');
  const ends = text(status, 'expirationTimestamp');
  const expires = ends === undefined ? undefined : Date.parse(ends);
  if (Number.isNaN(expires)) throw new Error('expirationTimestamp in its answer is not a time');
  return {
    ...(token !== undefined && { token }),
    ...(cert !== undefined &&
      key !== undefined && { cert: checkedCertificates(cert, 'clientCertificateData in its answer'), key }),
    ...(expires !== undefined && { expires }),
  };
}

function answerIn(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    // Without the text, which may hold the token.
    throw new Error('its answer is not JSON');
  }
}

/** Runs a plugin when its last answer has expired or was rejected, and not before. */
class ExecCredentials {
  #plugin = '';
  #last: ExecCredential | undefined;

  async get(plugin: ExecPlugin): Promise<ExecCredential> {
    const text = JSON.stringify(plugin);
    const { expires = Number.POSITIVE_INFINITY } = this.#last ?? {};
    if (this.#last && this.#plugin === text && Date.now() < expires) return this.#last;
    this.#last = await runPlugin(plugin);
    this.#plugin = text;
    return this.#last;
  }

  /** Call when the server does not accept the last answer. */
  forget(): void {
    this.#last = undefined;
  }
}

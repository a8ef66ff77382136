import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import {
  checkedCertificates,
  type KubeConnection,
  type KubeConnectionSource,
  messageOf,
  parseServer,
} from './connection.ts';
import { ExecCredentials, execPlugin } from './exec-credential.ts';

/** A part of a kubeconfig: any YAML mapping. It is read field by field, because people write these files. */
type Part = Readonly<Record<string, unknown>>;

/** Ways to log in that Kubernetes itself has given up, or that would need rights of their own. */
const UNSUPPORTED_USER = ['username', 'password', 'as'];

export interface KubeconfigOptions {
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
      throw new Error(`kubeconfig ${path}: ${messageOf(cause)}`, { cause });
    }
  };
}

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
    throw new Error(`${where}: ${messageOf(cause)}`, { cause });
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

export async function readToken(path: string): Promise<string> {
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

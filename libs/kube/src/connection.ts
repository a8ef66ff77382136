import { dirname, join, resolve } from 'node:path';
import {
  CertificatePool,
  checkedPem,
  ownChain,
  pemText,
  privateKeyIn,
  readNamedFile,
  reasonOf,
  UnusablePem,
} from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';

/** How to reach an API server, and the credentials. PEM texts, not paths. */
export interface KubeConnection {
  readonly server: URL;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /** The name to expect in the server's certificate, if it is not the host. */
  readonly serverName?: string;
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
      const token = readToken(join(directory, 'token'));
      const path = join(directory, 'ca.crt');
      const ca = checked(textIn(path), path);
      return { server: parseServer(`https://${authority}`, 'environment'), ca, token, insecureSkipTlsVerify: false };
    } catch (cause) {
      throw new Error(`the pod's service account: ${inWords(cause)}`, { cause });
    }
  };
}

/** @param kubeconfig the path that --kubeconfig gives; empty: what every pod gets */
export function flaggedConnection(kubeconfig: string): KubeConnectionSource {
  return kubeconfig === '' ? inClusterConnection() : kubeconfigFile(kubeconfig);
}

/** Reads the cluster and user of a kubeconfig file's current context. */
export function kubeconfigFile(path: string): KubeConnectionSource {
  return async () => {
    try {
      return await read(path);
    } catch (cause) {
      throw new Error(`kubeconfig ${path}: ${inWords(cause)}`, { cause });
    }
  };
}

/** A part of a kubeconfig: any YAML mapping. It is read field by field, because people write these files. */
type Part = Readonly<Record<string, unknown>>;

/** Ways to log in that Kubernetes itself has given up, that would need rights of their own, or that run a program. */
const UNSUPPORTED_USER = ['username', 'password', 'as', 'auth-provider', 'exec'];

const ONE_IS_MISSING = 'client-certificate and client-key go together, one is missing';

/**
 * Returns the parts of a kubeconfig that its current context names.
 * @param omitted what an omitted `user` stands for: one without credentials, as `user: {}`. With null it is refused
 */
async function contextIn(kubeconfig: string, omitted: Part | null = {}) {
  // Loaded only if there is such a file, because it takes 2 MB.
  const { yamlValue } = await import('./yaml.ts');
  const config = asPart(yamlValue(kubeconfig), 'the file');
  const current = requiredText(config, 'current-context', 'the file');
  const context = named(config, 'contexts', 'context', current);
  const clusterName = requiredText(context, 'cluster', `context ${current}`);
  const userName = requiredText(context, 'user', `context ${current}`);
  const cluster = named(config, 'clusters', 'cluster', clusterName);
  return { clusterName, cluster, userName, user: named(config, 'users', 'user', userName, omitted) };
}

/**
 * Returns the URL of the API server that a kubeconfig leads to. What else is wrong with it, and with the files that it names, says who uses it.
 * @throws Error if it leads to none, or if its user is not whole, such as in one that is being written: kubectl writes users last
 */
export async function serverIn(kubeconfig: string): Promise<string> {
  const { clusterName, cluster, userName, user } = await contextIn(kubeconfig, null);
  const inCluster = `cluster ${clusterName}`;
  const inUser = `user ${userName}`;
  const cut = Object.keys(user).find((field) => user[field] === null);
  if (cut !== undefined) throw new Error(`${inUser}: ${cut} is empty`);
  const given = ['client-certificate', 'client-key'].map((field) => text(user, `${field}-data`) ?? text(user, field));
  if ((given[0] === undefined) !== (given[1] === undefined)) throw new Error(`${inUser}: ${ONE_IS_MISSING}`);
  const [cert, key] = [inline(user, 'client-certificate', inUser), inline(user, 'client-key', inUser)];
  if (cert !== undefined) checked(cert, `${inUser}: client-certificate`, ownChain);
  if (key !== undefined) checked(key, `${inUser}: client-key`, privateKeyIn);
  text(user, 'token');
  return parseServer(requiredText(cluster, 'server', inCluster), inCluster).href;
}

async function read(path: string): Promise<KubeConnection> {
  const { clusterName, cluster, userName, user } = await contextIn(textIn(path, 'the file'));
  const dir = dirname(path);
  const inCluster = `cluster ${clusterName}`;
  if (text(cluster, 'proxy-url')) throw new Error(`${inCluster}: proxy-url is not supported`);
  const ca = material(cluster, 'certificate-authority', dir, inCluster);
  const serverName = text(cluster, 'tls-server-name');
  const own = credentials(user, dir, `user ${userName}`);
  return {
    server: parseServer(requiredText(cluster, 'server', inCluster), inCluster),
    insecureSkipTlsVerify: cluster['insecure-skip-tls-verify'] === true,
    ...(ca === undefined ? {} : { ca: checked(ca, `${inCluster}: certificate-authority`) }),
    ...(serverName === undefined ? {} : { serverName }),
    ...own,
  };
}

function credentials(user: Part, dir: string, where: string): Partial<KubeConnection> {
  const unsupported = UNSUPPORTED_USER.find((field) => user[field] !== undefined && user[field] !== null);
  if (unsupported !== undefined) {
    throw new Error(`${where}: ${unsupported} is not supported, use a client certificate, token or tokenFile`);
  }
  const cert = material(user, 'client-certificate', dir, where);
  const key = material(user, 'client-key', dir, where);
  if ((cert === undefined) !== (key === undefined)) {
    throw new Error(`${where}: ${ONE_IS_MISSING}`);
  }
  // A token file takes precedence over a token, as in client-go, because it is the one that is rotated.
  const tokenFile = text(user, 'tokenFile');
  const token =
    tokenFile === undefined
      ? text(user, 'token')
      : readToken(resolve(dir, tokenFile), `${where}: tokenFile ${tokenFile}`);
  return {
    ...(cert === undefined || key === undefined ? {} : checkedPair(cert, key, where)),
    ...(token === undefined ? {} : { token }),
  };
}

/** @param what names the file in an error */
function textIn(path: string, what = path): string {
  try {
    return readNamedFile(path).toString();
  } catch (cause) {
    throw new Error(`${what} cannot be read: ${reasonOf(cause)}`, { cause });
  }
}

function readToken(path: string, what = path): string {
  const token = textIn(path, what).trim();
  if (token === '') throw new Error(`token file ${path} is empty`);
  return token;
}

/** Returns `field-data` decoded from base64. */
function inline(part: Part, field: string, where: string): string | undefined {
  const data = text(part, `${field}-data`);
  if (data === undefined) return undefined;
  const pem = Buffer.from(data, 'base64').toString('utf8');
  if (!pem.includes('-----BEGIN')) throw new Error(`${where}: ${field}-data is not base64 of a PEM text`);
  return pem;
}

/** Returns the same, or the file that `field` names, relative to the kubeconfig. */
function material(part: Part, field: string, dir: string, where: string): string | undefined {
  const pem = inline(part, field, where);
  if (pem !== undefined) return pem;
  const path = text(part, field);
  return path === undefined ? undefined : textIn(resolve(dir, path), `${where}: ${field} ${path}`);
}

/** Checks early what would otherwise fail at the first request, with an error that does not name the file. */
function checked(pem: string, where: string, check: (pem: string) => unknown = CertificatePool.authorities): string {
  try {
    check(pem);
    return pem;
  } catch (cause) {
    throw new Error(`${where}: ${(cause as Error).message}`, { cause });
  }
}

function checkedPair(cert: string, key: string, where: string): Pick<KubeConnection, 'cert' | 'key'> {
  try {
    checkedPem({ cert, key });
    return { cert: pemText(cert), key: pemText(key) };
  } catch (cause) {
    const field = cause instanceof UnusablePem && cause.of === 'key' ? 'client-key' : 'client-certificate';
    throw new Error(`${where}: ${field}: ${(cause as Error).message}`, { cause });
  }
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
function named(config: Part, list: string, field: string, name: string, omitted: Part | null = {}): Part {
  const entries = config[list];
  const found = Array.isArray(entries) ? entries.find((entry) => asPart(entry, list).name === name) : undefined;
  if (found === undefined) throw new Error(`${list} has no entry ${JSON.stringify(name)}`);
  return asPart(asPart(found, list)[field] ?? omitted, `${field} ${name}`);
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

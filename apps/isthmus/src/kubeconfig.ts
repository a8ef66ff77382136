import { randomBytes } from 'node:crypto';
import { access, mkdir, open, realpath, rename, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import timers from 'node:timers/promises';
import { readNamedFile, reasonOf } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { type Document, isMap, isSeq, parseDocument, YAMLMap, YAMLSeq } from 'yaml';
import { ISTHMUS } from './defaults.ts';
import { EXIT, Failure, usage } from './output.ts';
import type { Terminal } from './terminal.ts';

/** Fields of a kubeconfig's entry, as far as this program reads them. */
interface Entry {
  readonly name: string;
  readonly cluster?: Readonly<Record<string, unknown>>;
  readonly user?: Readonly<Record<string, unknown>>;
  readonly context?: Readonly<Record<string, unknown>>;
}

type Section = 'clusters' | 'users' | 'contexts';

const FIELDS = { clusters: 'cluster', users: 'user', contexts: 'context' } as const;

/** One file of contexts, with its comments and all that others put into it: a kubeconfig, or the operator's own, which has its shape. */
export class Kubeconfig {
  readonly path: string;
  readonly #document: Document;

  private constructor(path: string, document: Document) {
    this.path = path;
    this.#document = document;
  }

  /** The file of --kubeconfig or of KUBECONFIG's list the first that exists, as kubectl chooses. */
  static async locate({ env }: Pick<Terminal, 'env'>, given?: string): Promise<string> {
    if (given !== undefined) return resolve(given);
    const listed = (env.KUBECONFIG ?? '').split(':').filter((path) => path !== '');
    for (const path of listed) if (await exists(path)) return resolve(path);
    const last = listed.at(-1);
    if (last !== undefined) return resolve(last);
    if (!env.HOME) throw usage('there is no KUBECONFIG and no HOME: name the file with --kubeconfig');
    return join(env.HOME, '.kube', 'config');
  }

  /** Reads a file; one that does not exist is empty. */
  static async read(path: string): Promise<Kubeconfig> {
    const document = parseDocument(textOf(path));
    const [error] = document.errors;
    if (error || (document.contents !== null && !isMap(document.contents)))
      throw usage(
        `${path} has no contexts: ${error ? `line ${error.linePos?.[0].line ?? '?'} is no YAML` : 'no mapping'}`,
      );
    return new Kubeconfig(path, document);
  }

  /**
   * Changes a file under the lock that kubectl takes for this, and replaces it at once. What the change leaves alone stays as it was.
   * Only the owner may read the file: it holds secrets.
   */
  static async change(path: string, change: (config: Kubeconfig) => void): Promise<void> {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const real = await realpath(path).catch(() => path);
    const unlock = await lock(`${real}.lock`);
    try {
      const config = await Kubeconfig.read(real);
      change(config);
      // Nobody else can have created it, to read it or to lead it elsewhere.
      const temporary = `${real}.${randomBytes(8).toString('hex')}.tmp`;
      const file = await open(temporary, 'wx', 0o600);
      try {
        try {
          await file.writeFile(String(config.#document));
          await file.sync();
        } finally {
          await file.close();
        }
        await rename(temporary, real);
      } catch (error) {
        await rm(temporary, { force: true });
        throw error;
      }
    } finally {
      await unlock();
    }
  }

  get currentContext(): string {
    return String(this.#document.get('current-context') ?? '');
  }

  set currentContext(name: string) {
    this.#document.set('current-context', name);
  }

  entry(section: Section, name: string): Entry | undefined {
    return this.#entries(section).find((each) => each?.name === name);
  }

  names(section: Section): string[] {
    return this.#entries(section).flatMap((each) => each?.name ?? []);
  }

  /** Sets fields of an entry. Others stay; undefined takes a field away. */
  put(section: Section, name: string, fields: Readonly<Record<string, unknown>>): void {
    const document = this.#document;
    if (document.contents === null) {
      document.contents = document.createNode({ apiVersion: 'v1', kind: 'Config' });
    }
    if (!isSeq(document.get(section))) document.set(section, new YAMLSeq());
    const list = document.get(section) as YAMLSeq;
    const index = list.items.findIndex((item) => isMap(item) && item.get('name') === name);
    if (index < 0) list.add(document.createNode({ name, [FIELDS[section]]: {} }));
    const entry = list.items[index < 0 ? list.items.length - 1 : index] as YAMLMap;
    if (!isMap(entry.get(FIELDS[section]))) entry.set(FIELDS[section], new YAMLMap());
    const own = entry.get(FIELDS[section]) as YAMLMap;
    for (const [field, value] of Object.entries(fields)) {
      if (value === undefined) own.delete(field);
      else own.set(field, document.createNode(value));
    }
  }

  /** Returns whether there was one. */
  delete(section: Section, name: string): boolean {
    const list = this.#document.get(section);
    if (!isSeq(list)) return false;
    const index = list.items.findIndex((item) => isMap(item) && item.get('name') === name);
    return index >= 0 && list.delete(index);
  }

  #entries(section: Section): readonly Entry[] {
    const list = (this.#document.toJS() as Record<string, unknown> | null)?.[section];
    return Array.isArray(list) ? list : [];
  }
}

function textOf(path: string): string {
  try {
    return readNamedFile(path, ISTHMUS.kubeconfigBytes).toString();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw usage(`cannot read ${path}: ${reasonOf(error)}`);
  }
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}

/** Takes a lock as kubectl does: whoever creates the file has it. */
async function lock(path: string): Promise<() => Promise<void>> {
  const end = performance.now() + ISTHMUS.kubeconfigLockMs;
  for (;;) {
    try {
      const file = await open(path, 'wx', 0o600);
      await file.close();
      return () => rm(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw usage(`cannot write ${path}: ${inWords(error)}`);
      if (performance.now() >= end)
        throw new Failure(EXIT.unasked, `another program holds ${path}: try again, or remove it if none is running`);
      await timers.setTimeout(ISTHMUS.kubeconfigLockAskMs);
    }
  }
}

/** A context with all that belongs to it. */
export interface KubeContext {
  readonly context: string;
  readonly cluster: string;
  readonly user: string;
  readonly server: string;
  /** The CA certificates of the cluster as PEM; undefined for those of the system. */
  readonly ca?: string;
  readonly serverName?: string;
  readonly insecure: boolean;
  readonly proxy?: URL;
  /** The user's client certificate and its key as PEM: both or none. */
  readonly cert?: string;
  readonly key?: string;
  /** The user's token. */
  readonly token?: string;
  /** Whether the user has nothing that proves it, not even a command that gets it. kubectl then asks for a name and a password. */
  readonly nameless: boolean;
}

/** Fields of a user that prove it to an API server by themselves, or say how to get what does. */
const PROOFS = [
  'token',
  'tokenFile',
  'client-certificate',
  'client-certificate-data',
  'exec',
  'auth-provider',
  'username',
];

/** Reads a context, the current one if none is named. */
export async function kubeContext(config: Kubeconfig, name = config.currentContext): Promise<KubeContext> {
  if (name === '') throw usage(`${config.path} has no current context: kubectl config use-context NAME`);
  const context = config.entry('contexts', name)?.context;
  if (!context) throw usage(`${config.path} has no context ${JSON.stringify(name)}`);
  const cluster = config.entry('clusters', String(context.cluster))?.cluster;
  if (!cluster)
    throw usage(`${config.path} has no cluster ${JSON.stringify(context.cluster)}, which context ${name} names`);
  const user = config.entry('users', String(context.user))?.user ?? {};
  const ca = pemOf(config.path, cluster, 'certificate-authority');
  const cert = pemOf(config.path, user, 'client-certificate');
  const key = pemOf(config.path, user, 'client-key');
  const token = tokenOf(config.path, user);
  if ((cert === undefined) !== (key === undefined))
    throw usage(`user ${context.user} of ${config.path} has only one of client-certificate and client-key`);
  const { server, 'tls-server-name': serverName, 'proxy-url': proxy } = cluster;
  return {
    context: name,
    cluster: String(context.cluster),
    user: String(context.user ?? ''),
    server: String(server ?? ''),
    insecure: cluster['insecure-skip-tls-verify'] === true,
    nameless: !PROOFS.some((field) => user[field] !== undefined && user[field] !== ''),
    ...(token !== undefined && { token }),
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && key !== undefined && { cert, key }),
    ...(typeof serverName === 'string' && { serverName }),
    ...(typeof proxy === 'string' && proxy !== '' && { proxy: urlOf('proxy-url', proxy) }),
  };
}

/** As client-go does: the file takes precedence. */
function tokenOf(path: string, { token, tokenFile }: Readonly<Record<string, unknown>>) {
  if (typeof tokenFile === 'string' && tokenFile !== '')
    return readNamed('tokenFile', resolve(dirname(path), tokenFile)).trim();
  return typeof token === 'string' && token !== '' ? token : undefined;
}

/** Reads a field that names a file, or has its text in `-data` beside it. */
function pemOf(path: string, entry: Readonly<Record<string, unknown>>, field: string) {
  const { [`${field}-data`]: data, [field]: file } = entry;
  if (typeof data === 'string' && data !== '') return Buffer.from(data, 'base64').toString();
  if (typeof file !== 'string' || file === '') return undefined;
  return readNamed(field, resolve(dirname(path), file));
}

export function readNamed(what: string, path: string): string {
  try {
    return readNamedFile(path).toString();
  } catch (error) {
    throw usage(`${what}: cannot read ${path}: ${reasonOf(error)}`);
  }
}

/** Files with certificates and a key (PEM), as options name them. */
export interface CredentialOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Reads the files that the options --ca, --cert and --key name. The last two come together, or neither does. */
export async function readCredentials({ ca, cert, key }: CredentialOptions): Promise<CredentialOptions> {
  if ((cert === undefined) !== (key === undefined)) throw usage('--cert and --key go together: give both, or none');
  return {
    ...(ca !== undefined && { ca: readNamed('--ca', ca) }),
    ...(cert !== undefined && { cert: readNamed('--cert', cert) }),
    ...(key !== undefined && { key: readNamed('--key', key) }),
  };
}

/** Parses a URL. Its text, which may hold a token, is not shown. */
export function urlOf(what: string, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && ['http:', 'https:'].includes(url.protocol)) return url;
  throw usage(`${what}: want a URL such as https://gateway.example:8090`);
}

import { randomBytes } from 'node:crypto';
import { access, mkdir, open, readFile, readlink, realpath, rename, rm } from 'node:fs/promises';
import { delimiter, dirname, join, resolve } from 'node:path';
import timers from 'node:timers/promises';
import { readNamedFile, reasonOf } from '@isthmus/runtime';
import { inWords } from '@isthmus/tunnel';
import { type Document, isMap, isSeq, parseDocument, YAMLMap, YAMLSeq } from 'yaml';
import { ISTHMUS } from './defaults.ts';
import { EXIT, Failure, unwritten, usage } from './output.ts';
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

/** One file, with its comments and all that others put into it. */
interface File {
  readonly path: string;
  readonly document: Document;
}

/**
 * Files of contexts: of a kubeconfig, which may be several, or the operator's own, which has its shape. They are merged as kubectl does it: of
 * entries with one name, and for the current context, the first file counts.
 */
export class Kubeconfig {
  readonly #files: readonly File[];

  private constructor(files: readonly File[]) {
    this.#files = files;
  }

  /** The file of --kubeconfig alone, or those of KUBECONFIG's list, as kubectl chooses. */
  static locate({ env }: Pick<Terminal, 'env'>, given?: string): readonly string[] {
    if (given !== undefined) return [resolve(given)];
    const listed = (env.KUBECONFIG ?? '').split(delimiter).filter((path) => path !== '');
    if (listed.length > 0) return [...new Set(listed.map((path) => resolve(path)))];
    if (!env.HOME) throw usage('there is no KUBECONFIG and no HOME: name the file with --kubeconfig');
    return [join(env.HOME, '.kube', 'config')];
  }

  /** Reads files; one that does not exist is empty. */
  static read(paths: readonly string[]): Kubeconfig {
    return new Kubeconfig(paths.map((path) => ({ path, document: documentOf(path) })));
  }

  /**
   * Changes files under the locks that kubectl takes for this, and replaces each changed one at once. What the change leaves alone stays as it
   * was. Only the owner may read them: they hold secrets.
   */
  static async change(paths: readonly string[], change: (config: Kubeconfig) => void): Promise<Kubeconfig> {
    const target = await newOf(paths);
    await mkdir(dirname(target), { recursive: true, mode: 0o700 }).catch((error) => {
      throw unwritten(target, error);
    });
    const there: string[] = [];
    for (const path of paths) if (path === target || (await exists(path))) there.push(path);
    const unlock = await lockAll(await Promise.all(there.map(realOf)));
    try {
      const config = Kubeconfig.read([target, ...there.filter((path) => path !== target)]);
      const before = config.#files.map(({ document }) => String(document));
      change(config);
      for (const [index, { path, document }] of config.#files.entries())
        if (String(document) !== before[index]) await replace(await realOf(path), String(document));
      return config;
    } finally {
      await unlock();
    }
  }

  /** For messages. */
  get path(): string {
    return this.#files.map(({ path }) => path).join(delimiter);
  }

  get currentContext(): string {
    const found = this.#files.map(({ document }) => String(document.get('current-context') ?? ''));
    return found.find((name) => name !== '') ?? '';
  }

  set currentContext(name: string) {
    this.#files[0]?.document.set('current-context', name);
  }

  /** An entry, with the file that has it. */
  entry(section: Section, name: string): (Entry & { readonly path: string }) | undefined {
    for (const file of this.#files) {
      const found = entriesOf(file, section).find((each) => each.name === name);
      if (found) return { ...found, path: file.path };
    }
    return undefined;
  }

  names(section: Section): string[] {
    return [...new Set(this.#files.flatMap((file) => entriesOf(file, section).map(({ name }) => name)))];
  }

  /** Sets fields of an entry. Others stay; undefined takes a field away. */
  put(section: Section, name: string, fields: Readonly<Record<string, unknown>>): void {
    const has = (file: File) => entriesOf(file, section).some((each) => each.name === name);
    const { document } = (this.#files.find(has) ?? this.#files[0]) as File;
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
    for (const { document } of this.#files) {
      const list = document.get(section);
      const index = isSeq(list) ? list.items.findIndex((item) => isMap(item) && item.get('name') === name) : -1;
      if (isSeq(list) && index >= 0) return list.delete(index);
    }
    return false;
  }
}

/** Where kubectl puts what is new: into the first file of a list that exists, or into the last. */
async function newOf(paths: readonly string[]): Promise<string> {
  for (const path of paths) if (await exists(path)) return path;
  return paths.at(-1) ?? '';
}

/** Where a link leads, also if nothing is there yet: writing creates it there, as kubectl does. */
async function realOf(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return path;
    const leads = await readlink(path).catch(() => undefined);
    return leads === undefined ? path : await realOf(resolve(await realpath(dirname(path)), leads));
  }
}

/** Replaces a file by another, so that a reader sees the old or the new one; one that is a mount, which cannot be replaced, in place. */
async function replace(path: string, text: string): Promise<void> {
  // Nobody else can have created it, to read it or to lead it elsewhere.
  const temporary = `${path}.${randomBytes(8).toString('hex')}.tmp`;
  try {
    await written(temporary, 'wx', text);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    if ((error as NodeJS.ErrnoException).code !== 'EBUSY') throw unwritten(path, error);
    const before = await readFile(path);
    await written(path, 'w', text).catch(async (full) => {
      await written(path, 'w', before).catch(() => {});
      throw unwritten(path, full);
    });
  }
}

async function written(path: string, flags: 'w' | 'wx', text: string | Buffer): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await file.chmod(0o600);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

function documentOf(path: string): Document {
  const document = parseDocument(textOf(path));
  const [error] = document.errors;
  if (error || (document.contents !== null && !isMap(document.contents)))
    throw usage(
      `${path} has no contexts: ${error ? `line ${error.linePos?.[0].line ?? '?'} is no YAML` : 'no mapping'}`,
    );
  return document;
}

/** Its entries. A field that is no mapping is as one that is missing, as for kubectl one that is null. */
function entriesOf({ path, document }: File, section: Section): readonly Entry[] {
  const field = FIELDS[section];
  const list = (plainOf(path, document) as Record<string, unknown> | null)?.[section];
  const entries = (Array.isArray(list) ? list : []) as (Record<string, unknown> | null)[];
  return entries.flatMap((entry) => {
    const { name, [field]: own } = entry ?? {};
    const isMapping = typeof own === 'object' && own !== null && !Array.isArray(own);
    return typeof name === 'string' ? { name, ...(isMapping && { [field]: own }) } : [];
  });
}

function plainOf(path: string, document: Document): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // An alias to nothing, or to so much that it would fill the memory.
    throw usage(`${path} has no contexts: ${inWords(error)}`);
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

/** Takes the locks of files in one order, as kubectl does, so that nobody waits for each other. */
async function lockAll(paths: readonly string[]): Promise<() => Promise<void>> {
  const taken: (() => Promise<void>)[] = [];
  const unlock = async () => {
    for (const each of taken) await each();
  };
  try {
    for (const path of [...paths].sort()) taken.push(await lock(`${path}.lock`));
    return unlock;
  } catch (error) {
    await unlock();
    throw error;
  }
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
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw unwritten(path, error);
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
  readonly namespace?: string;
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
  const { context } = config.entry('contexts', name) ?? {};
  if (!context) throw usage(`${config.path} has no context ${JSON.stringify(name)}`);
  const { cluster, path: clusterPath = '' } = config.entry('clusters', String(context.cluster)) ?? {};
  if (!cluster)
    throw usage(`${config.path} has no cluster ${JSON.stringify(context.cluster)}, which context ${name} names`);
  const { user = {}, path: userPath = '' } = config.entry('users', String(context.user)) ?? {};
  const ca = pemOf(clusterPath, cluster, 'certificate-authority');
  const cert = pemOf(userPath, user, 'client-certificate');
  const key = pemOf(userPath, user, 'client-key');
  const token = tokenOf(userPath, user);
  if ((cert === undefined) !== (key === undefined))
    throw usage(`user ${context.user} of ${config.path} has only one of client-certificate and client-key`);
  const { server, 'tls-server-name': serverName, 'proxy-url': proxy } = cluster;
  return {
    context: name,
    cluster: String(context.cluster),
    user: String(context.user ?? ''),
    ...(typeof context.namespace === 'string' && { namespace: context.namespace }),
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

/** Parses a URL. Its text, which may hold a token, is not shown. As for Go, what is before its @ is percent-encoded. */
export function urlOf(what: string, text: string): URL {
  try {
    const url = new URL(text);
    decodeURIComponent(`${url.username}:${url.password}`);
    if (['http:', 'https:'].includes(url.protocol)) return url;
  } catch {}
  throw usage(`${what}: want a URL such as https://gateway.example:8090`);
}

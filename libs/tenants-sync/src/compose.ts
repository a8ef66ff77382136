import { createHash } from 'node:crypto';
import { passwordHash } from '@isthmus/admission';
import { yamlValue } from '@isthmus/kube/yaml';
import { stringify } from 'yaml';
import { SYNC } from './defaults.ts';
import { OwnSecret, PLANE, type Reference, type Source, type Store } from './kinds.ts';
import type { Values } from './values.ts';

/** Where references lead: values by `NAMESPACE/NAME`. */
export type Stores = (store: Store, name: string) => Values | undefined;

/** What a ClusterProfile says of a tenant: how a program of the management cluster reaches its API server through the plane. */
export interface Profile {
  /** The secret with the token that the gateways take. Its place is the object's. */
  readonly secret: string;
  /** Undefined until the secret is there. */
  readonly token: string | undefined;
  /** The CA of the tenant's API server. */
  readonly ca: string;
  /** The tenant's own name of the gateways. */
  readonly serverName: string | undefined;
}

/** A tenant's file as it is to be, with the files that it names. */
export interface Composed {
  /** The object that had the last word. */
  readonly source: Source;
  readonly tenant: string;
  readonly text: string;
  /** Content by file name, one byte a character. They lie in the folder that `text` names. */
  readonly files: ReadonlyMap<string, string>;
  /** The folder, in the directory. Another content has another folder. */
  readonly folder: string;
  /** What a ClusterProfile is to say of it, if the object asks for one. */
  readonly profile?: Profile;
}

/** What is wrong with what an object says or names. */
export interface Fault {
  /** The field: `agents[0].certificates.ca`; empty for the object itself. */
  readonly at: string;
  readonly message: string;
}

export interface Composition {
  readonly result: Composed | { readonly faults: readonly Fault[] };
  /** The secrets and config maps that it depends on, whether they are there or not. */
  readonly names: readonly string[];
}

/** Where the files lie that tenants' files name: members pass over names that begin with a dot. And how tenants' files end. */
export const FILES = '.files';
export const ENDING = '.yaml';

/** Names of the API's namespaces and objects, which are to become names of files. */
const NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;
const TENANT_CHARACTERS = 63;
/** The longest name of a file that lets its folder and what is not complete yet have longer ones: a file system takes 255 bytes. */
const FILE_CHARACTERS = 220;

/** The file of the CA of an API server's client certificate, which is the cluster's. */
const CALLERS_CA = /^callers-\d+-certificates-ca$/;

/** What a kubeconfig may say of a cluster and a user: nothing that names a file of this machine, or runs a program. */
const KUBECONFIG_FIELDS = {
  clusters: ['server', 'certificate-authority-data', 'tls-server-name', 'insecure-skip-tls-verify'],
  users: ['client-certificate-data', 'client-key-data', 'token'],
} as const;

/** The name of a tenant's file without its ending. No two objects have one: a namespace has no dot in it. */
export function fileName({ namespace, name }: Pick<Source, 'namespace' | 'name'>): string {
  return `${namespace}.${name}`;
}

/** @param sources the objects of one name: of them, the first says what the tenant is, unless a later one has a field of its own */
export function compose(sources: readonly [Source, ...Source[]], stores: Stores): Composition {
  const [{ kind, namespace, name }] = sources;
  const faults: Fault[] = [];
  const files = new Map<string, string>();
  const names = new Set<string>();
  const said = sources.map(({ fields: each }) => (typeof each === 'string' ? JSON.parse(each) : each));
  const fields: Record<string, unknown> = Object.assign({}, ...said);
  const { tenant = `${namespace}-${name}`, clusterProfile, unixSocket: _, source: __, ...rest } = fields;
  for (const { unkept } of sources) if (unkept !== undefined) faults.push({ at: '', message: unkept });
  if (!NAME.test(namespace) || !NAME.test(name)) faults.push({ at: '', message: 'its name is no name of a file' });
  if (fileName(sources[0]).length > FILE_CHARACTERS)
    faults.push({ at: '', message: `namespace and name have more than ${FILE_CHARACTERS} characters together` });
  if (fields.tenant === undefined && String(tenant).length > TENANT_CHARACTERS)
    faults.push({ at: '', message: `${tenant} has more than ${TENANT_CHARACTERS} characters: name it in spec.tenant` });

  const contentOf = (reference: Reference | OwnSecret, at: string): string | undefined => {
    try {
      return content(reference, at.endsWith('.kubeconfig'));
    } catch (error) {
      faults.push({ at, message: (error as Error).message });
      return undefined;
    }
  };
  const content = (reference: Reference | OwnSecret, kubeconfig: boolean): string => {
    const own = reference instanceof OwnSecret;
    const ofConfigMap = !own && reference.configMapRef !== undefined;
    const place = own ? reference : (reference.configMapRef ?? reference.secretRef);
    if (!place || typeof place.name !== 'string' || typeof place.key !== 'string')
      throw new Error('expected a secretRef or configMapRef with name and key');
    const what = ofConfigMap ? 'config map' : 'secret';
    const where = ('namespace' in place && place.namespace) || namespace;
    const full = `${where}/${place.name}`;
    names.add(full);
    const found = stores(own ? reference.from : what, full);
    if (!found)
      throw new Error(
        own ? `there is no secret ${full} yet` : `there is no ${what} ${full} with the label ${PLANE} of this plane`,
      );
    const unkept = found.unkept === undefined ? '' : `; not all of it is kept: ${found.unkept}`;
    if (where !== namespace && !found.allows.includes(namespace) && !found.allows.includes('*'))
      throw new Error(`${what} ${full} is of another namespace, and does not allow tenants of ${namespace}${unkept}`);
    const value = found.values.get(place.key);
    if (value === undefined) throw new Error(`${what} ${full} has no key ${JSON.stringify(place.key)}${unkept}`);
    if (kubeconfig) checkKubeconfig(value);
    return value;
  };

  /** Returns a value with the names of files where there were references. */
  const resolved = (value: unknown, at: string): unknown => {
    if (Array.isArray(value)) return value.map((each, index) => resolved(each, `${at}[${index}]`));
    if (typeof value !== 'object' || value === null) return value;
    if (value instanceof OwnSecret || 'secretRef' in value || 'configMapRef' in value) {
      const bytes = contentOf(value as Reference | OwnSecret, at);
      const file = at.replace(/[^A-Za-z0-9]+/g, '-');
      files.set(file, bytes ?? '');
      return new File(file);
    }
    const entries = Object.entries(value).map(([key, each]) => [key, resolved(each, at === '' ? key : `${at}.${key}`)]);
    return Object.fromEntries(entries);
  };

  const secret = clusterProfile === true ? `${name}-plane-access` : undefined;
  if (secret !== undefined) names.add(`${namespace}/${secret}`);
  const { values: own, unkept } = (secret && stores('secret', `${namespace}/${secret}`)) || {};
  const held = own?.get('token');
  if (held === undefined && unkept !== undefined)
    faults.push({
      at: 'clusterProfile',
      message: `secret ${secret} has no key "token"; not all of it is kept: ${unkept}`,
    });
  const token = held !== undefined && passwordHash(held) !== undefined ? held : undefined;
  if (token !== undefined)
    rest.callers = [
      ...((rest.callers as object[] | undefined) ?? []),
      { passwords: [{ name: 'cluster-profile', sha256: passwordHash(token) }] },
    ];

  const value = resolved(rest, '') as { readonly server?: { readonly serverNames?: readonly string[] } };
  const bytes = [...files.values()].reduce((sum, { length }) => sum + length, 0);
  if (bytes > SYNC.namespaceBytes)
    faults.push({ at: '', message: `what it names has ${bytes} bytes: at most ${SYNC.namespaceBytes} are written` });
  if (faults.length > 0) return { names: [...names], result: { faults } };
  const digest = createHash('sha256');
  for (const [file, bytes] of files) digest.update(`${file} ${bytes.length}\n`).update(bytes, 'latin1');
  const folder = `${FILES}/${fileName(sources[0])}.${digest.digest('hex').slice(0, 16)}`;
  const text = stringify(
    JSON.parse(
      JSON.stringify({ tenant, source: { kind, namespace, name }, ...value }, (_key, each) =>
        each instanceof File ? `${folder}/${each.name}` : each,
      ),
    ),
    { lineWidth: 0, aliasDuplicateObjects: false },
  );
  const serverName = value.server?.serverNames?.find((each) => !each.includes('*'));
  const ca = [...files].find(([file]) => CALLERS_CA.test(file))?.[1] ?? '';
  const profile = secret === undefined ? undefined : { secret, token, ca, serverName };
  const source = sources.at(-1) ?? sources[0];
  return {
    names: [...names],
    result: { source, tenant: String(tenant), text, files, folder, ...(profile && { profile }) },
  };
}

/** A file that the tenant's file is to name. */
class File {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** @throws Error if it names a file, or anything but an API server, its CA and a credential: members would read what its author may not */
function checkKubeconfig(text: string): void {
  const config = yamlValue(text) as Record<string, unknown> | null;
  for (const [list, allowed] of Object.entries(KUBECONFIG_FIELDS)) {
    const entries = config?.[list];
    if (!Array.isArray(entries)) throw new Error(`a kubeconfig without ${list}`);
    for (const entry of entries) {
      const { [list.slice(0, -1)]: fields = {} } = entry as Record<string, object>;
      const foreign = Object.keys(fields ?? {}).find((field) => !(allowed as readonly string[]).includes(field));
      if (foreign !== undefined) throw new Error(`${foreign} of a kubeconfig is not supported here: put it in as data`);
    }
  }
}

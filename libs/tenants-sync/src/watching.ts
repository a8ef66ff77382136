import { followObjects, type KubeClient, type KubeObject, KubeStatusError, objectName } from '@isthmus/kube';
import type { Stores } from './compose.ts';
import {
  type AgentTokens,
  FROM,
  type From,
  PLANE,
  type ServedKind,
  type Source,
  type SourceKind,
  type SourceObject,
  sourceKeeper,
  TENANT,
} from './kinds.ts';
import { KnownObjects } from './objects.ts';
import type { TenantStatus } from './status.ts';
import { ValueKeeper, type Values, type ValuesObject } from './values.ts';

export interface WatchingOptions {
  readonly client: KubeClient;
  readonly plane: string;
  /** Where tenants come from beside `Tenant` objects. */
  readonly from: readonly From[];
  /** The only namespace that is read; empty for all. */
  readonly namespace: string;
  readonly agents: AgentTokens;
  readonly changed: (name: string, gone?: Source) => void;
  readonly changedValues: (name: string) => void;
  /** Called when a kind cannot be listed or watched, and without an error when it can again. */
  readonly failed: (what: string, error: Error | undefined) => void;
  /** Called whenever all kinds have been listed since this program began. */
  readonly listed: () => void;
  readonly now: () => number;
}

type KnownValues = KnownObjects<ValuesObject, Values>;
type Sources = KnownObjects<KubeObject, Source>;

/** All objects of which tenants are made, followed from `start` on. */
export class Watching implements AsyncDisposable {
  readonly stores: Stores;
  readonly #options: WatchingOptions;
  /** In the order in which they say what a tenant is: the last one overrides. */
  readonly #sources = new Map<SourceKind, Sources>();
  readonly #owned = new Map<From, KnownValues>();
  readonly #labelled: { readonly secret: KnownValues; readonly 'config map': KnownValues };
  /** What has not been listed yet. */
  readonly #unlisted = new Set<string>();
  readonly #followers: AsyncDisposable[] = [];
  /** Of `Tenant` objects, by name. */
  readonly #statuses = new Map<string, TenantStatus>();

  constructor(options: WatchingOptions) {
    this.#options = options;
    for (const kind of [...options.from.map((from) => FROM[from]), TENANT])
      this.#sources.set(kind, this.#known(kind.plural, this.#keeper(kind), options.changed));
    const values = (what: string, keeper: ValueKeeper) =>
      this.#known<ValuesObject, Values>(
        what,
        (object) => keeper.keep(object),
        (name, gone) => {
          if (gone) keeper.forget(name);
          options.changedValues(name);
        },
      );
    for (const from of options.from) {
      const { secrets, plural } = FROM[from];
      this.#owned.set(from, values(`secrets of ${plural}`, new ValueKeeper('secret', secrets?.keys)));
    }
    this.#labelled = {
      secret: values('secrets', new ValueKeeper('secret')),
      'config map': values('config maps', new ValueKeeper('config map')),
    };
    this.stores = {
      own: (from, name) => this.#owned.get(from)?.get(name),
      labelled: (kind, name) => this.#labelled[kind].get(name),
    };
  }

  /** Which kinds have not been listed since this program began. */
  get unlisted(): readonly string[] {
    return [...this.#unlisted];
  }

  /** The objects of a name. */
  sources(name: string): Source[] {
    return [...this.#sources.values()].flatMap((known) => known.get(name) ?? []);
  }

  /** The status of a `Tenant` object, as the API server has it. */
  status(name: string): TenantStatus | undefined {
    return this.#statuses.get(name);
  }

  /** Takes the object of a file that lies here for one that was there. */
  assume({ kind, namespace, name }: Pick<Source, 'kind' | 'namespace' | 'name'>): void {
    const gone: Source = { kind, namespace, name, created: 0, generation: 0, atOnce: true, fields: {} };
    for (const [each, known] of this.#sources) if (each.kind === kind) known.assume(`${namespace}/${name}`, gone);
  }

  start(): void {
    for (const [kind, known] of this.#sources) this.#follow((signal) => this.#servedPath(kind, signal), known);
    for (const [from, known] of this.#owned)
      this.#follow(this.#core('secrets'), known, FROM[from].secrets?.labelSelector);
    const labelSelector = `${PLANE}=${this.#options.plane}`;
    this.#follow(this.#core('secrets'), this.#labelled.secret, labelSelector);
    this.#follow(this.#core('configmaps'), this.#labelled['config map'], labelSelector);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#followers.map((each) => each[Symbol.asyncDispose]()));
  }

  /** What is kept of the objects of a kind, with the status of those of ours beside it. */
  #keeper(kind: SourceKind): (object: SourceObject) => Source | undefined {
    const keep = sourceKeeper(kind, this.#options.plane, this.#options.agents);
    if (kind !== TENANT) return keep;
    return (object) => {
      const kept = keep(object);
      if (kept) this.#statuses.set(objectName(object), (object.status ?? {}) as TenantStatus);
      return kept;
    };
  }

  #known<T extends KubeObject, K>(
    what: string,
    keep: (object: T) => K | undefined,
    changed: (name: string, gone?: K) => void,
  ): KnownObjects<T, K> {
    this.#unlisted.add(what);
    const { now, failed, listed, from } = this.#options;
    const known = new KnownObjects<T, K>({
      ...{ keep, now },
      changed: (name, gone) => {
        if (gone !== undefined && what === TENANT.plural) this.#statuses.delete(name);
        changed(name, gone);
      },
      failed: (error) => {
        // `Tenant` objects are needed only where nothing else makes tenants.
        const none = error instanceof NotServed && what === TENANT.plural && from.length > 0;
        if (none) known.listed('', NONE);
        else failed(what, error);
      },
      listed: () => {
        this.#unlisted.delete(what);
        if (this.#unlisted.size === 0) listed();
      },
    });
    return known;
  }

  #core(plural: string): string {
    return this.#pathOf('/api/v1', plural);
  }

  #pathOf(api: string, plural: string): string {
    const { namespace } = this.#options;
    return namespace === '' ? `${api}/${plural}` : `${api}/namespaces/${encodeURIComponent(namespace)}/${plural}`;
  }

  #follow<T extends KubeObject, K>(
    path: Parameters<typeof followObjects>[1]['path'],
    known: KnownObjects<T, K>,
    labelSelector?: string,
  ): void {
    const selected = labelSelector === undefined ? {} : { labelSelector };
    this.#followers.push(followObjects(this.#options.client, { path, ...selected }, known));
  }

  async #servedPath(kind: SourceKind, signal: AbortSignal): Promise<string> {
    const version = await servedVersion(this.#options.client, kind, signal);
    if (version === undefined) throw new NotServed(kind);
    return this.#pathOf(`/apis/${kind.group}/${version}`, kind.plural);
  }
}

const NONE: ReadonlySet<string> = new Set();

/** The API server has no such kind: its definition may be installed later. */
export class NotServed extends Error {
  constructor({ plural, group }: ServedKind) {
    super(`the API server has no ${plural}.${group}`);
  }
}

/** The version of a kind to use; undefined if the API server does not serve the group. */
export async function servedVersion(
  client: KubeClient,
  { group, versions }: ServedKind,
  signal: AbortSignal,
): Promise<string | undefined> {
  const path = `/apis/${group}`;
  const served = await client.request<ApiGroup>({ method: 'GET', path, signal }).catch(unlessNotFound);
  return versions.find((each) => served?.versions?.some(({ version }) => version === each));
}

interface ApiGroup {
  readonly versions?: readonly { readonly version: string }[];
}

export function unlessNotFound(error: unknown): undefined {
  if (error instanceof KubeStatusError && error.status === 404) return undefined;
  throw error;
}

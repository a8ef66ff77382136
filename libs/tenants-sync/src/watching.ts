import { followObjects, type KubeClient, type KubeObject, objectName, unlessNotFound } from '@isthmus/kube';
import type { Stores } from './compose.ts';
import {
  type AgentTokens,
  FROM,
  type From,
  PLANE,
  type ServedKind,
  type Source,
  type SourceKind,
  type SourceName,
  type SourceObject,
  type Store,
  sourceKeeper,
  TENANT,
} from './kinds.ts';
import { KnownObjects, type KnownOptions } from './objects.ts';
import type { ToldStatus } from './status.ts';
import { ValueKeeper, type Values, type ValuesObject } from './values.ts';

export interface WatchingOptions {
  readonly client: KubeClient;
  readonly plane: string;
  /** Where tenants come from beside `Tenant` objects. */
  readonly from: readonly From[];
  /** The only namespace that is read; empty for all. */
  readonly namespace: string;
  readonly agents: AgentTokens;
  /** The objects of files that lie here: they count as objects that were there. */
  readonly lying: readonly SourceName[];
  readonly changed: (name: string, gone?: Source) => void;
  readonly changedValues: (name: string) => void;
  /** Called when a kind cannot be listed or watched, and without an error when it can again. */
  readonly failed: (what: string, error: Error | undefined) => void;
  /** Called with an object whose last state the API server no longer has. */
  readonly rolledBack: (what: string, name: string) => void;
  /** Called whenever all kinds have been listed since this program began. */
  readonly listed: () => void;
  readonly now: () => number;
}

/** Follows all objects of which tenants are made. */
export class Watching implements AsyncDisposable {
  readonly stores: Stores = (store, name) => this.#values.get(store)?.get(name);
  readonly #options: WatchingOptions;
  /** In the order in which they say what a tenant is: the last one overrides. */
  readonly #sources = new Map<Source['kind'], KnownObjects<SourceObject, Source>>();
  readonly #values = new Map<Store, KnownObjects<ValuesObject, Values>>();
  /** What has not been listed yet. */
  readonly #unlisted = new Set<string>();
  readonly #followers: AsyncDisposable[] = [];
  readonly #restores = { count: 0 };
  /** Of `Tenant` objects, by name. */
  readonly #statuses = new Map<string, ToldStatus>();

  constructor(options: WatchingOptions) {
    this.#options = options;
    const { from, plane, changed, lying } = options;
    for (const kind of [...from.map((each) => FROM[each]), TENANT]) {
      const path = (signal: AbortSignal) => this.#servedPath(kind, signal);
      const known = this.#follow(kind.plural, path, { keep: this.#keeper(kind), changed });
      this.#sources.set(kind.kind, known);
      for (const each of lying) if (each.kind === kind.kind) known.assume(objectName({ metadata: each }), goneOf(each));
    }
    for (const each of from) this.#followValues(each, `secrets of ${FROM[each].plural}`, FROM[each].secrets);
    const labelled = { labelSelector: `${PLANE}=${plane}` };
    this.#followValues('secret', 'secrets', labelled);
    this.#followValues('config map', 'config maps', labelled);
  }

  /** Which kinds have not been listed since this program began. */
  get unlisted(): readonly string[] {
    return [...this.#unlisted];
  }

  /** The objects of a name. */
  sources(name: string): Source[] {
    return [...this.#sources.values()].flatMap((known) => known.get(name) ?? []);
  }

  /** The status of a `Tenant` object, as the API server has it; undefined if it has no such object. */
  status(name: string): ToldStatus | undefined {
    return this.#statuses.get(name);
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
      const { status = {}, metadata } = object;
      if (kept) this.#statuses.set(objectName(object), { status, version: metadata.resourceVersion ?? '' });
      return kept;
    };
  }

  #followValues(
    store: Store,
    what: string,
    { labelSelector, keys }: { readonly labelSelector: string; readonly keys?: readonly string[] },
  ): void {
    const [kind, plural] =
      store === 'config map' ? (['config map', 'configmaps'] as const) : (['secret', 'secrets'] as const);
    const keeper = new ValueKeeper(kind, keys);
    const changed = (name: string, gone?: Values) => {
      if (gone) keeper.forget(name);
      this.#options.changedValues(name);
    };
    const keep = (object: ValuesObject) => keeper.keep(object);
    this.#values.set(store, this.#follow(what, this.#pathOf('/api/v1', plural), { keep, changed }, labelSelector));
  }

  #follow<T extends KubeObject, K>(
    what: string,
    path: Parameters<typeof followObjects>[1]['path'],
    { keep, changed }: Pick<KnownOptions<T, K>, 'keep' | 'changed'>,
    labelSelector?: string,
  ): KnownObjects<T, K> {
    this.#unlisted.add(what);
    const { client, now, failed, rolledBack, listed, from } = this.#options;
    const known = new KnownObjects<T, K>({
      ...{ keep, now, restores: this.#restores },
      changed: (name, gone) => {
        if (gone !== undefined && what === TENANT.plural) this.#statuses.delete(name);
        changed(name, gone);
      },
      rolledBack: (name) => rolledBack(what, name),
      failed: (error) => {
        // `Tenant` objects are needed only where nothing else makes tenants.
        const none = error instanceof NotServed && what === TENANT.plural && from.length > 0;
        if (none) known.listed('', NONE);
        else failed(what, error);
      },
      listed: (names) => {
        // What the API server lacks can have no status, though its tenant stays.
        if (what === TENANT.plural)
          for (const name of this.#statuses.keys()) if (!names.has(name)) this.#statuses.delete(name);
        this.#unlisted.delete(what);
        if (this.#unlisted.size === 0) listed();
      },
    });
    const selected = labelSelector === undefined ? {} : { labelSelector };
    this.#followers.push(followObjects(client, { path, ...selected }, known));
    return known;
  }

  #pathOf(api: string, plural: string): string {
    const { namespace } = this.#options;
    return namespace === '' ? `${api}/${plural}` : `${api}/namespaces/${encodeURIComponent(namespace)}/${plural}`;
  }

  async #servedPath(kind: SourceKind, signal: AbortSignal): Promise<string> {
    const version = await servedVersion(this.#options.client, kind, signal);
    if (version === undefined) throw new NotServed(kind);
    return this.#pathOf(`/apis/${kind.group}/${version}`, kind.plural);
  }
}

/** What stands for an object that nobody has seen, once it is gone. */
function goneOf(name: SourceName): Source {
  return { ...name, created: 0, generation: 0, atOnce: true, fields: {} };
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

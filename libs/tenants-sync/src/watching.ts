import {
  type Following,
  followObjects,
  type KubeClient,
  type KubeObject,
  objectName,
  unlessNotFound,
} from '@isthmus/kube';
import type { Stores } from './compose.ts';
import { SYNC } from './defaults.ts';
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
import { Shares } from './shares.ts';
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
  readonly stores: Stores = (store, name) => {
    const { known, keeper } = this.#values.get(store) ?? {};
    return known?.get(name) ?? keeper?.missing(name.slice(0, name.indexOf('/')));
  };
  readonly #options: WatchingOptions;
  /** In the order in which they say what a tenant is: the last one overrides. */
  readonly #sources = new Map<Source['kind'], KnownObjects<SourceObject, Source>>();
  readonly #values = new Map<
    Store,
    { readonly known: KnownObjects<ValuesObject, Values>; readonly keeper: ValueKeeper }
  >();
  /** What has not been listed yet. */
  readonly #unlisted = new Set<string>();
  readonly #followed: { readonly shares: Shares; readonly following: Following }[] = [];
  #freedAt = Number.NEGATIVE_INFINITY;
  readonly #restores = { count: 0 };
  /** Of `Tenant` objects, by name. */
  readonly #statuses = new Map<string, ToldStatus>();

  constructor(options: WatchingOptions) {
    this.#options = options;
    const { from, plane, changed, lying } = options;
    for (const kind of [...from.map((each) => FROM[each]), TENANT]) {
      const path = (signal: AbortSignal) => this.#servedPath(kind, signal);
      const shares = new Shares({
        why: (namespace) =>
          `what ${kind.plural} of ${namespace} say has more than ${SYNC.namespaceBytes} characters, or they are more than ${SYNC.namespaceEntries}`,
        failed: this.#shortOf(kind.plural),
      });
      const keep = this.#keeper(kind, shares);
      const known = this.#follow<SourceObject, Source>(kind.plural, path, { keep, changed, shares });
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
    await Promise.all(this.#followed.map(({ following }) => following[Symbol.asyncDispose]()));
  }

  /** Lists kinds again of which more can be kept than before. Where somebody makes room again and again, it is done rarely. */
  listFreed(): void {
    const now = this.#options.now();
    if (now - this.#freedAt < SYNC.freedMs) return;
    for (const { shares, following } of this.#followed) {
      if (!shares.freed) continue;
      this.#freedAt = now;
      following.listAgain();
    }
  }

  /** What is kept of the objects of a kind, with the status of those of ours beside it. */
  #keeper(kind: SourceKind, shares: Shares): KnownOptions<SourceObject, Source>['keep'] {
    const keep = sourceKeeper(kind, this.#options.plane, this.#options.agents);
    return (object, known) => {
      const whole = keep(object);
      if (!whole) return undefined;
      const name = objectName(object);
      const kept = shares.keep(name, (part) => {
        const characters = JSON.stringify(whole.fields).length;
        const isLarge = characters > SYNC.valueBytes;
        if (!isLarge && part.take(characters, 1)) return whole;
        if (!part.take(0, 1) && !known) return undefined;
        const large = `it has ${characters} characters: at most ${SYNC.valueBytes} are read`;
        return { ...whole, fields: {}, unkept: isLarge ? large : shares.why(whole.namespace) };
      });
      const { status = {}, metadata } = object;
      if (kind === TENANT && kept) this.#statuses.set(name, { status, version: metadata.resourceVersion ?? '' });
      return kept;
    };
  }

  /** Says that a namespace has more than its share of what is kept of a kind. */
  #shortOf(what: string) {
    return (namespace: string, error: Error | undefined) => this.#options.failed(`${what} of ${namespace}`, error);
  }

  #followValues(
    store: Store,
    what: string,
    { labelSelector, keys }: { readonly labelSelector: string; readonly keys?: readonly string[] },
  ): void {
    const [kind, plural] =
      store === 'config map' ? (['config map', 'configmaps'] as const) : (['secret', 'secrets'] as const);
    const keeper = new ValueKeeper(kind, this.#shortOf(what), keys);
    const { shares } = keeper;
    const changed = (name: string) => this.#options.changedValues(name);
    const keep: KnownOptions<ValuesObject, Values>['keep'] = (object, known) => keeper.keep(object, known);
    const path = this.#pathOf('/api/v1', plural);
    const known = this.#follow<ValuesObject, Values>(what, path, { keep, changed, shares }, labelSelector);
    this.#values.set(store, { known, keeper });
  }

  #follow<T extends KubeObject, K>(
    what: string,
    path: Parameters<typeof followObjects>[1]['path'],
    { keep, changed, shares }: Pick<KnownOptions<T, K>, 'keep' | 'changed'> & { readonly shares: Shares },
    labelSelector?: string,
  ): KnownObjects<T, K> {
    this.#unlisted.add(what);
    const { client, now, failed, rolledBack, listed, from } = this.#options;
    const known = new KnownObjects<T, K>({
      ...{ keep, now, restores: this.#restores },
      changed: (name, gone) => {
        if (gone !== undefined) shares.forget(name);
        if (gone !== undefined && what === TENANT.plural) this.#statuses.delete(name);
        changed(name, gone);
      },
      rolledBack: (name) => rolledBack(what, name),
      failed: (error) => {
        // `Tenant` objects are needed only where nothing else makes tenants.
        const none = error instanceof NotServed && what === TENANT.plural && from.length > 0;
        if (none) {
          known.listing();
          known.listed('');
        } else failed(what, error);
      },
      listing: () => shares.listing(),
      listed: (has) => {
        shares.listed();
        // What the API server lacks can have no status, though its tenant stays.
        if (what === TENANT.plural)
          for (const name of this.#statuses.keys()) if (!has(name)) this.#statuses.delete(name);
        this.#unlisted.delete(what);
        if (this.#unlisted.size === 0) listed();
      },
    });
    const selected = labelSelector === undefined ? {} : { labelSelector };
    this.#followed.push({ shares, following: followObjects(client, { path, ...selected }, known) });
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

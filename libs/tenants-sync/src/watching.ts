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
import { namespaceOf, Shares, type SharesOptions } from './shares.ts';
import { countedStatus, type ToldStatus } from './status.ts';
import { type Values, type ValuesObject, valueKeeper } from './values.ts';

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
  /** Called with which secrets and config maps are others than before. */
  readonly changedValues: (isChanged: (name: string) => boolean) => void;
  /** Called when a kind cannot be listed or watched, and without an error when it can again. */
  readonly failed: (what: string, error: Error | undefined) => void;
  /** Called when not all is kept of the objects of a kind in a namespace, and without a reason when all is again. */
  readonly short: (what: string, why: string | undefined) => void;
  /** Called with an object whose last state the API server no longer has. */
  readonly rolledBack: (what: string, name: string) => void;
  /** Called whenever all kinds have been listed since this program began. */
  readonly listed: () => void;
  readonly now: () => number;
}

/** Follows all objects of which tenants are made. */
export class Watching implements AsyncDisposable {
  readonly stores: Stores = (store, name) => {
    const { known, shares } = this.#values.get(store) ?? {};
    const unkept = shares?.missing(name);
    return known?.get(name) ?? (unkept === undefined ? undefined : { values: new Map(), allows: [], unkept });
  };
  readonly #options: WatchingOptions;
  /** In the order in which they say what a tenant is: the last one overrides. */
  readonly #sources = new Map<Source['kind'], Followed<SourceObject, Source>>();
  readonly #values = new Map<Store, Followed<ValuesObject, Values>>();
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
      const why = (namespace: string) =>
        `what ${kind.plural} of ${namespace} say has more than ${SYNC.namespaceBytes} characters, or they are more than ${SYNC.namespaceEntries}`;
      const keep = this.#keeper(kind);
      const lacking = (isLacked: (name: string) => boolean) => {
        for (const { known } of this.#sources.values())
          for (const name of known.names) if (isLacked(name)) changed(name);
      };
      const followed = this.#follow<SourceObject, Source>(kind.plural, path, { keep, changed, why, lacking });
      this.#sources.set(kind.kind, followed);
      for (const each of lying)
        if (each.kind === kind.kind) followed.known.assume(objectName({ metadata: each }), goneOf(each));
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

  /** The objects of a name. They do not count by themselves while one may be missing that overrides them, or that they override. */
  sources(name: string): Source[] {
    const found = [...this.#sources.values()].map(({ known, shares }) => known.get(name) ?? shares.missing(name));
    const missing = found.find((each) => typeof each === 'string');
    const known = found.filter((each) => typeof each === 'object');
    const unkept = `another object of its name may be missing: ${missing}`;
    return missing === undefined ? known : known.map((source) => ({ unkept, ...source }));
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
  #keeper(kind: SourceKind): KnownOptions<SourceObject, Source>['keep'] {
    const keep = sourceKeeper(kind, this.#options.plane, this.#options.agents);
    return (object, known, part) => {
      const whole = keep(object);
      if (!whole) return undefined;
      const { status = {}, metadata } = object;
      const fields = JSON.stringify(whole.fields);
      const characters = fields.length;
      const isLarge = characters > SYNC.valueBytes;
      const fits = !isLarge && part.take(characters, 1);
      if (!fits && !part.take(0, 1) && !known) return undefined;
      const version = metadata.resourceVersion ?? '';
      if (kind === TENANT) this.#statuses.set(objectName(object), { status: countedStatus(status), version });
      if (fits) return kind === TENANT ? { ...whole, fields } : whole;
      const large = `it has ${characters} characters: at most ${SYNC.valueBytes} are read`;
      return { ...whole, fields: {}, unkept: isLarge ? large : `${part.short}` };
    };
  }

  #followValues(
    store: Store,
    what: string,
    { labelSelector, keys }: { readonly labelSelector: string; readonly keys?: readonly string[] },
  ): void {
    const [kind, plural] =
      store === 'config map' ? (['config map', 'configmaps'] as const) : (['secret', 'secrets'] as const);
    const most = `${SYNC.namespaceEntries} keys and allowed namespaces or ${SYNC.namespaceBytes} bytes`;
    const why = (namespace: string) => `what is labelled in ${namespace} has more than ${most}`;
    const lacking = this.#options.changedValues;
    const changed = (name: string) => lacking((each) => each === name);
    const path = this.#pathOf('/api/v1', plural);
    this.#values.set(
      store,
      this.#follow(what, path, { keep: valueKeeper(kind, keys), changed, why, lacking }, labelSelector),
    );
  }

  #follow<T extends KubeObject, K>(
    what: string,
    path: Parameters<typeof followObjects>[1]['path'],
    { keep, changed, why, lacking }: FollowOptions<T, K>,
    labelSelector?: string,
  ): Followed<T, K> {
    this.#unlisted.add(what);
    const { client, now, failed, short, rolledBack, listed, from } = this.#options;
    const shares = new Shares({
      why,
      short: (namespace, missing) => {
        short(`${what} in namespace ${namespace}`, missing);
        lacking((name) => namespaceOf(name) === namespace && known.get(name) === undefined);
      },
    });
    const known = new KnownObjects<T, K>({
      ...{ keep, shares, now, restores: this.#restores },
      changed: (name, gone) => {
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
      listed: (has) => {
        // What the API server lacks can have no status, though its tenant stays.
        if (what === TENANT.plural)
          for (const name of this.#statuses.keys()) if (!has(name)) this.#statuses.delete(name);
        this.#unlisted.delete(what);
        if (this.#unlisted.size === 0) listed();
      },
    });
    const selected = labelSelector === undefined ? {} : { labelSelector };
    this.#followed.push({ shares, following: followObjects(client, { path, ...selected }, known) });
    return { known, shares };
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

interface FollowOptions<T, K> extends Pick<KnownOptions<T, K>, 'keep' | 'changed'>, Pick<SharesOptions, 'why'> {
  /** Called with which names may be of objects that are not kept, when that changes. */
  readonly lacking: (isLacked: (name: string) => boolean) => void;
}

/** The objects of a kind, of each namespace no more than its share. */
interface Followed<T extends KubeObject, K> {
  readonly known: KnownObjects<T, K>;
  readonly shares: Shares;
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

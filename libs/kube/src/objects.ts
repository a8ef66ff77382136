import { Backoff } from '@isthmus/runtime';
import { AnswerTooLong, type KubeClient } from './client.ts';
import { KUBE } from './defaults.ts';
import { periodic } from './lease.ts';

/** What every object of the API has, and all that is known of one here. */
export interface KubeObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly generation?: number;
    readonly creationTimestamp?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
}

/** What happens to the objects of one kind. A list that lacks an object is no event of it: only the API server says that one was deleted. */
export interface ObjectObserver<T extends KubeObject> {
  /** Called for each object of a list, and for each that is created or changed. */
  seen(object: T): void;
  /** After a list, also called for what was deleted before it. Only the version says whether the object was created again since. */
  deleted(object: T): void;
  /** Called before the first object of a list. It may end without `listed`, and begin again. */
  listing(): void;
  /** Called at the end of a list that is complete: each of its objects has been `seen` since `listing`. @param version of the list */
  listed(version: string): void;
  /** Called when a list or a watch has failed, which is tried again, and without an error when a watch is open. */
  failed(error: Error | undefined): void;
}

/** Objects that are followed until this is disposed of. */
export interface Following extends AsyncDisposable {
  /** Ends the watch to list all again. Between watches it does nothing. */
  listAgain(): void;
}

export interface FollowedKind {
  /** `/apis/isthmus.dev/v1alpha1/tenants`; asked for before each list and watch, because a version of a kind may come, or be served no more. */
  readonly path: string | ((signal: AbortSignal) => Promise<string>);
  readonly labelSelector?: string;
  /** Without an event for so many milliseconds, a watch is opened again. Default 150 s. */
  readonly idleMs?: number;
  /** The longest pause after a failure, in milliseconds. Default 5 s. */
  readonly retryCapMs?: number;
}

interface List<T> {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  /** Go says null of none. */
  readonly items?: readonly T[] | null;
}

interface WatchEvent<T> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: T & { readonly code?: number; readonly reason?: string; readonly message?: string };
}

/** The name of an object in its kind: `NAMESPACE/NAME`. */
export function objectName({ metadata: { namespace = '', name } }: KubeObject): string {
  return `${namespace}/${name}`;
}

/** -1, 0 or 1 as one version is older or newer than another. Versions of one kind are numbers that grow (KEP-5504). */
export function compareVersions(one: string, other: string): number {
  if (!/^\d+$/.test(one) || !/^\d+$/.test(other)) return 0;
  const [a, b] = [BigInt(one), BigInt(other)];
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * Follows the objects of one kind: lists them in pages, then watches from there. A watch that ends goes on where it was, unless the API server
 * has forgotten that (410), or never had it (an older etcd): then all is listed again, as it is from time to time. A watch goes on from before
 * such a list, because it tells of what was deleted, and the list does not.
 */
export function followObjects<T extends KubeObject>(
  client: Pick<KubeClient, 'request' | 'watch'>,
  kind: FollowedKind,
  observer: ObjectObserver<T>,
): Following {
  const { idleMs = KUBE.objectsIdleMs, retryCapMs = KUBE.objectsRetryCapMs } = kind;
  const backoff = new Backoff(KUBE.watchRetryFirstMs, retryCapMs);
  /** What a watch has told of or is to begin from; undefined if all is to be listed. */
  let version: string | undefined;
  /** Of the last list. */
  let listed = '';
  let cutWatch = () => {};
  let listedAt = Number.NEGATIVE_INFINITY;
  const selected = kind.labelSelector === undefined ? {} : { labelSelector: kind.labelSelector };
  let path = '';

  const pageOf = (query: Readonly<Record<string, string>>, signal: AbortSignal, most = {}) =>
    client.request<List<T>>({ method: 'GET', path, query, signal, ...most });

  const list = async (signal: AbortSignal) => {
    const at = performance.now();
    let query: Record<string, string> = selected;
    let limit = KUBE.pageObjects;
    observer.listing();
    for (;;) {
      const most = limit === 1 ? {} : { answerBytes: KUBE.pageBytes };
      const page = await pageOf({ ...query, limit: String(limit) }, signal, most).catch((error: Error) => {
        if (!(error.cause instanceof AnswerTooLong) || limit === 1) throw error;
        limit = Math.ceil(limit / 8);
        return undefined;
      });
      if (page === undefined) continue;
      const { items, metadata = {} } = page;
      for (const item of items ?? []) observer.seen(item);
      if (!metadata.continue) {
        listed = metadata.resourceVersion ?? '';
        if (compareVersions(version ?? '', listed) >= 0) version = listed;
        listedAt = at;
        return observer.listed(listed);
      }
      query = { ...query, continue: metadata.continue };
      limit = Math.min(KUBE.pageObjects, 2 * limit);
    }
  };

  /**
   * Whether the API server cannot tell what has happened since. One whose etcd was restored accepts a watch from a version that it will have
   * only later, and keeps silent about all before it.
   */
  const isForgotten = async (signal: AbortSignal) => {
    if (version === undefined) return true;
    const { metadata } = await pageOf({ ...selected, limit: '1' }, signal);
    return compareVersions(metadata?.resourceVersion ?? '', version) < 0;
  };

  const apply = ({ type, object }: WatchEvent<T>) => {
    if (type === 'ERROR') throw new WatchEnded(`${object.code ?? ''} ${object.reason ?? ''} ${object.message ?? ''}`);
    // Other types are skipped, as in client-go.
    if (!/^(ADDED|MODIFIED|DELETED|BOOKMARK)$/.test(type)) return;
    const next = object.metadata.resourceVersion ?? '';
    if (compareVersions(next, version ?? '') < 0) throw new WatchEnded(`version ${next} follows ${version}`);
    version = next;
    if (type === 'DELETED') observer.deleted(object);
    else if (type !== 'BOOKMARK' && compareVersions(next, listed) >= 0) observer.seen(object);
  };

  const watch = async (signal: AbortSignal) => {
    const query = { ...selected, resourceVersion: version ?? '', allowWatchBookmarks: 'true' };
    const lengthMs = Math.max(1000, Math.min(KUBE.watchMs, listedAt + KUBE.relistMs - performance.now()));
    const onOpen = () => observer.failed(undefined);
    const cut = new AbortController();
    cutWatch = () => cut.abort();
    const from = version;
    const openedAt = performance.now();
    const limits = { signal: AbortSignal.any([signal, cut.signal]), lengthMs, idleMs, onOpen };
    try {
      for await (const event of client.watch<WatchEvent<T>>({ method: 'GET', path, query }, limits)) apply(event);
    } catch (error) {
      listedAt = Number.NEGATIVE_INFINITY;
      if (!cut.signal.aborted) {
        // The API server may have forgotten this version, or tell something next that cannot be read.
        if (version === from) version = undefined;
        // A balancer may cut each watch after a while.
        if (performance.now() - openedAt > retryCapMs) backoff.reset();
        throw error;
      }
    }
    // One that is opened and lost again and again is a failure, too.
    backoff.reset();
  };

  const rounds = periodic(
    async (signal) => {
      path = typeof kind.path === 'string' ? kind.path : await kind.path(signal);
      if (performance.now() - listedAt >= KUBE.relistMs || (await isForgotten(signal))) await list(signal);
      await watch(signal);
      return KUBE.watchRetryFirstMs;
    },
    (error) => {
      // It may come back with an older etcd that has reached the same number by other changes.
      listedAt = Number.NEGATIVE_INFINITY;
      observer.failed(error as Error);
      return backoff.next();
    },
  );
  return { ...rounds, listAgain: () => cutWatch() };
}

/** The API server ended a watch with an error, usually 410: what was listed is too old to watch from. */
class WatchEnded extends Error {
  constructor(why: string) {
    super(`the watch ended: ${why.trim()}`);
  }
}

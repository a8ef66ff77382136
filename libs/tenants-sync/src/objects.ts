import { isDeepStrictEqual } from 'node:util';
import { compareVersions, type KubeObject, type ObjectObserver, objectName } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import type { Part, Shares } from './shares.ts';

interface Known<K> {
  /** Undefined for one that nobody has seen. */
  readonly kept: K | undefined;
  /** What stands for it once it is gone, if nobody has seen it. */
  readonly assumed?: K;
  readonly version: string;
  /** The number of the list that has it, or after which it was seen. */
  list: number;
  /** When a complete list first lacked it; infinite if only a deletion that is seen ends it. */
  absentAt?: number;
}

export interface KnownOptions<T, K> {
  /**
   * Returns what is kept of an object; undefined if it is to be taken as one that does not exist.
   * @param known whether there is anything of it: then there is room for it
   * @param part takes what is kept
   */
  readonly keep: (object: T, known: boolean, part: Part) => K | undefined;
  /** Bounds what is kept of each namespace. */
  readonly shares: Shares;
  /** Called with the name of an object that is new, is gone, or of which something else is kept. @param gone what was kept of it last, if it is */
  readonly changed: (name: string, gone?: K) => void;
  /** Called with the name of an object whose last state the API server no longer has, because its etcd was restored. */
  readonly rolledBack: (name: string) => void;
  readonly failed: (error: Error | undefined) => void;
  /** Called with each complete list. @param has whether it has an object of a name */
  readonly listed: (has: (name: string) => boolean) => void;
  /** How often an object or a list of any kind was older than before, as after a restore. All kinds of an API server share it. */
  readonly restores: { count: number };
  /** A steady clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * The objects of one kind. One that a list lacks stays, because lists come back empty or short: from a cache that is not filled, or an etcd
 * that was restored. It goes when the API server says that it was deleted, or when two complete lists an hour apart lack it. An empty list
 * never counts: an API server that is new, or has lost everything, answers so for hours, and one tenant too many does less harm than none.
 * Versions that go back, or ahead faster than an etcd takes writes (etcdutl's --bump-revision), show that an etcd was restored. What it has then
 * counts, and of what it lacks, only a deletion ends anything. One kind shows it for all.
 */
export class KnownObjects<T extends KubeObject, K> implements ObjectObserver<T> {
  readonly #options: KnownOptions<T, K>;
  readonly #known = new Map<string, Known<K>>();
  /** The newest version since the last list. */
  #newest = '';
  /** The version of the last list. */
  #version = '';
  /** How many restores the last list has taken into account. */
  #restores = 0;
  /** How many lists have begun, and whether there was an object since. */
  #list = 0;
  #seen = false;

  constructor(options: KnownOptions<T, K>) {
    this.#options = options;
  }

  get(name: string): K | undefined {
    return this.#known.get(name)?.kept;
  }

  get names(): Iterable<string> {
    return this.#known.keys();
  }

  /** Takes an object for one that was there, such as one of which a file lies here. @param gone what stands for it if no list has it */
  assume(name: string, gone: K): void {
    if (!this.#known.has(name)) this.#known.set(name, { kept: undefined, assumed: gone, version: '', list: 0 });
  }

  seen(object: T): void {
    const { changed, rolledBack, restores } = this.#options;
    const name = objectName(object);
    this.#seen = true;
    const before = this.#known.get(name);
    const kept = this.#keep(name, object, before !== undefined);
    const version = object.metadata.resourceVersion ?? '';
    if (compareVersions(version, this.#newest) > 0 || this.#newest === '') this.#newest = version;
    if (before && compareVersions(version, before.version) < 0) {
      restores.count++;
      rolledBack(name);
    }
    if (kept === undefined) {
      if (before) this.#forget(name, before.kept ?? before.assumed);
      return;
    }
    this.#known.set(name, { kept, version, list: this.#list });
    if (!isDeepStrictEqual(before?.kept, kept)) changed(name);
  }

  deleted(object: T): void {
    const name = objectName(object);
    const before = this.#known.get(name);
    if (!before) this.#options.shares.forget(name);
    else if (compareVersions(object.metadata.resourceVersion ?? '', before.version) >= 0)
      this.#forget(name, this.#keep(name, object, true) ?? before.kept ?? before.assumed);
  }

  #keep(name: string, object: T, known: boolean): K | undefined {
    const { keep, shares } = this.#options;
    return shares.keep(name, (part) => keep(object, known, part));
  }

  /** @param gone the last that was known of it */
  #forget(name: string, gone: K | undefined): void {
    this.#known.delete(name);
    this.#options.shares.forget(name);
    this.#options.changed(name, gone);
  }

  listing(): void {
    this.#list++;
    this.#seen = false;
    this.#options.shares.listing();
  }

  listed(version: string): void {
    const { now, rolledBack, listed, restores, shares } = this.#options;
    const at = now();
    const isAhead = this.#version !== '' && Number(version) - Number(this.#version) > SYNC.restoredWrites;
    this.#version = version;
    if (isAhead || compareVersions(version, this.#newest) < 0) restores.count++;
    const restored = restores.count > this.#restores;
    this.#restores = restores.count;
    this.#newest = version || this.#newest;
    for (const [name, known] of this.#known) {
      if (known.list === this.#list) delete known.absentAt;
      else if (restored) {
        known.absentAt = Number.POSITIVE_INFINITY;
        rolledBack(name);
      } else if (!this.#seen) continue;
      else if (known.absentAt === undefined) known.absentAt = at;
      else if (at - known.absentAt >= SYNC.absentMs) this.#forget(name, known.kept ?? known.assumed);
    }
    shares.listed();
    listed((name) => this.#known.get(name)?.list === this.#list);
  }

  failed(error: Error | undefined): void {
    this.#options.failed(error);
  }
}

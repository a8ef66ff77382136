import { isDeepStrictEqual } from 'node:util';
import { compareVersions, type KubeObject, type ObjectObserver, objectName } from '@isthmus/kube';
import { SYNC } from './defaults.ts';

interface Known<K> {
  /** Undefined for one that nobody has seen. */
  readonly kept: K | undefined;
  /** What stands for it once it is gone, if nobody has seen it. */
  readonly assumed?: K;
  readonly version: string;
  /** When a complete list first lacked it; infinite if only a deletion that is seen ends it. */
  absentAt?: number;
}

export interface KnownOptions<T, K> {
  /** Returns what is kept of an object; undefined if it is to be taken as one that does not exist. */
  readonly keep: (object: T) => K | undefined;
  /** Called with the name of an object that is new, is gone, or of which something else is kept. @param gone what was kept of it last, if it is */
  readonly changed: (name: string, gone?: K) => void;
  /** Called with the name of an object whose last state the API server no longer has, because its etcd was restored. */
  readonly rolledBack: (name: string) => void;
  readonly failed: (error: Error | undefined) => void;
  /** Called with each complete list. @param names what it has */
  readonly listed: (names: ReadonlySet<string>) => void;
  /** How often an object or a list of any kind was older than before, as after a restore. All kinds of an API server share it. */
  readonly restores: { count: number };
  /** A steady clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * The objects of one kind. One that a list lacks stays, because lists come back empty or short: from a cache that is not filled, or an etcd
 * that was restored. It goes when the API server says that it was deleted, or when two complete lists an hour apart lack it. An empty list
 * never counts: an API server that is new, or has lost everything, answers so for hours, and one tenant too many does less harm than none.
 * Versions that go back show that an etcd was restored. What it has then counts, and of what it lacks, only a deletion ends anything. One kind
 * shows it for all: a restore that lifts the versions of lists (etcdutl's --bump-revision) leaves objects the ones that they had in the backup.
 */
export class KnownObjects<T extends KubeObject, K> implements ObjectObserver<T> {
  readonly #options: KnownOptions<T, K>;
  readonly #known = new Map<string, Known<K>>();
  /** The newest version since the last list. */
  #newest = '';
  /** How many restores the last list has taken into account. */
  #restores = 0;

  constructor(options: KnownOptions<T, K>) {
    this.#options = options;
  }

  get(name: string): K | undefined {
    return this.#known.get(name)?.kept;
  }

  /** Takes an object for one that was there, such as one of which a file lies here. @param gone what stands for it if no list has it */
  assume(name: string, gone: K): void {
    if (!this.#known.has(name)) this.#known.set(name, { kept: undefined, assumed: gone, version: '' });
  }

  seen(object: T): void {
    const { keep, changed, rolledBack, restores } = this.#options;
    const name = objectName(object);
    const kept = keep(object);
    const before = this.#known.get(name);
    const version = object.metadata.resourceVersion ?? '';
    if (compareVersions(version, this.#newest) > 0 || this.#newest === '') this.#newest = version;
    if (before && compareVersions(version, before.version) < 0) {
      restores.count++;
      rolledBack(name);
    }
    if (kept === undefined) {
      this.#known.delete(name);
      if (before) changed(name, before.kept ?? before.assumed);
      return;
    }
    this.#known.set(name, { kept, version });
    if (!isDeepStrictEqual(before?.kept, kept)) changed(name);
  }

  deleted(object: T): void {
    const name = objectName(object);
    const before = this.#known.get(name);
    if (!before) return;
    this.#known.delete(name);
    this.#options.changed(name, this.#options.keep(object) ?? before.kept ?? before.assumed);
  }

  listed(version: string, names: ReadonlySet<string>): void {
    const { now, changed, rolledBack, listed, restores } = this.#options;
    const at = now();
    if (compareVersions(version, this.#newest) < 0) restores.count++;
    const restored = restores.count > this.#restores;
    this.#restores = restores.count;
    this.#newest = version || this.#newest;
    for (const [name, known] of this.#known) {
      if (names.has(name)) delete known.absentAt;
      else if (restored) {
        known.absentAt = Number.POSITIVE_INFINITY;
        rolledBack(name);
      } else if (names.size === 0) continue;
      else if (known.absentAt === undefined) known.absentAt = at;
      else if (at - known.absentAt >= SYNC.absentMs) {
        this.#known.delete(name);
        changed(name, known.kept ?? known.assumed);
      }
    }
    listed(names);
  }

  failed(error: Error | undefined): void {
    this.#options.failed(error);
  }
}

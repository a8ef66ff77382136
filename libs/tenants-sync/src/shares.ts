import { getOrPut } from '@isthmus/runtime';
import { SYNC } from './defaults.ts';

/** What is kept of an object, in bytes of what its author says, and in entries: itself, its keys, the namespaces that it allows. */
interface Held {
  bytes: number;
  entries: number;
}

const NOTHING: Readonly<Held> = { bytes: 0, entries: 0 };

/** What is kept of an object that nobody has seen before, if its namespace has no room left. */
export const NO_ROOM = Symbol('no room');

/** An object that takes its part of its namespace's share. */
export class Part implements Held {
  bytes = 0;
  entries = 0;
  /** Whether something of it did not fit. */
  short = false;
  readonly #others: Readonly<Held>;

  constructor(others: Readonly<Held>) {
    this.#others = others;
  }

  /**
   * @param needed whether something is missing if it does not fit
   * @returns whether it fits; otherwise nothing is taken
   */
  take(bytes: number, entries: number, needed = true): boolean {
    const fits =
      this.#others.bytes + this.bytes + bytes <= SYNC.namespaceBytes &&
      this.#others.entries + this.entries + entries <= SYNC.namespaceEntries;
    if (fits) {
      this.bytes += bytes;
      this.entries += entries;
    } else if (needed) this.short = true;
    return fits;
  }
}

export interface SharesOptions {
  /** What is said of a namespace that has more than its share. */
  readonly why: (namespace: string) => string;
  /** Called when it has, and without an error once it has no more. */
  readonly failed: (namespace: string, error: Error | undefined) => void;
}

/** Bounds what is kept of the objects of a kind: who may create them in a namespace fills no more than its share. */
export class Shares {
  readonly why: (namespace: string) => string;
  /** Whether there is room where some was missing, so that all is to be listed again. */
  freed = false;
  readonly #failed: SharesOptions['failed'];
  readonly #held = new Map<string, Readonly<Held>>();
  /** By namespace. */
  readonly #totals = new Map<string, Held>();
  /** Namespaces of which something was not kept since the last list began, and those of which that was said. */
  #short = new Set<string>();
  readonly #told = new Set<string>();

  constructor({ why, failed }: SharesOptions) {
    this.why = why;
    this.#failed = failed;
  }

  /** Whether something of a namespace is not kept. */
  isShort(namespace: string): boolean {
    return this.#short.has(namespace);
  }

  /** Gives back what an object had, and lets it take what it has now. @param name `NAMESPACE/NAME` */
  keep<K>(name: string, keep: (part: Part) => K): K {
    const namespace = namespaceOf(name);
    const before = this.#held.get(name) ?? NOTHING;
    this.#add(name, { bytes: -before.bytes, entries: -before.entries });
    const part = new Part(this.#totals.get(namespace) ?? NOTHING);
    const kept = keep(part);
    const { bytes, entries } = part;
    this.#add(name, part);
    if (entries > 0) this.#held.set(name, { bytes, entries });
    else this.#held.delete(name);
    if (bytes < before.bytes || entries < before.entries) this.#free(namespace);
    if (part.short) this.#misses(namespace);
    return kept;
  }

  /** What it had is free again. */
  forget(name: string): void {
    this.keep(name, () => {});
  }

  /** A list begins: each object comes again. */
  listing(): void {
    this.#short = new Set();
    this.freed = false;
  }

  listed(): void {
    for (const namespace of this.#told) {
      if (this.#short.has(namespace)) continue;
      this.#told.delete(namespace);
      this.#failed(namespace, undefined);
    }
  }

  #add(name: string, { bytes, entries }: Readonly<Held>): void {
    const namespace = namespaceOf(name);
    const total = getOrPut(this.#totals, namespace, () => ({ ...NOTHING }));
    total.bytes += bytes;
    total.entries += entries;
    if (total.entries === 0) this.#totals.delete(namespace);
  }

  #free(namespace: string): void {
    if (this.#short.has(namespace)) this.freed = true;
  }

  #misses(namespace: string): void {
    this.#short.add(namespace);
    if (this.#told.has(namespace)) return;
    this.#told.add(namespace);
    this.#failed(namespace, new Error(this.why(namespace)));
  }
}

function namespaceOf(name: string): string {
  return name.slice(0, name.indexOf('/'));
}

import { getOrPut } from '@isthmus/runtime';
import { SYNC } from './defaults.ts';

/** What an object takes of its namespace's share: bytes of what its author says, and entries, as itself, its keys, the namespaces that it allows. */
export class Part {
  bytes = 0;
  entries = 0;
  /** Why something of it is not kept, if it did not fit. */
  short: string | undefined;
  readonly #total: Total;

  /** @param total of its namespace */
  constructor(total: Total) {
    this.#total = total;
  }

  /**
   * @param needed whether something is missing if it does not fit
   * @returns whether it fits; otherwise nothing is taken
   */
  take(bytes: number, entries: number, needed = true): boolean {
    const total = this.#total;
    const fits = total.bytes + bytes <= SYNC.namespaceBytes && total.entries + entries <= SYNC.namespaceEntries;
    if (!fits) {
      if (needed) this.short = total.why;
      return false;
    }
    this.bytes += bytes;
    this.entries += entries;
    total.bytes += bytes;
    total.entries += entries;
    return true;
  }

  giveBack(): void {
    this.#total.bytes -= this.bytes;
    this.#total.entries -= this.entries;
  }
}

interface Total {
  bytes: number;
  entries: number;
  /** What is said of it if it is more than the share. One text, because thousands of objects may have it. */
  readonly why: string;
}

export interface SharesOptions {
  /** What is said of a namespace that has more than its share. */
  readonly why: (namespace: string) => string;
  /** Called when it has, and without a reason once it has no more. */
  readonly short: (namespace: string, why: string | undefined) => void;
}

/** Bounds what is kept of the objects of a kind: who may create them in a namespace fills no more than its share. */
export class Shares {
  /** Whether there is room where some was missing, so that all is to be listed again. */
  freed = false;
  readonly #options: SharesOptions;
  readonly #held = new Map<string, Part>();
  readonly #totals = new Map<string, Total>();
  /** How many lists have begun. */
  #list = 0;
  /** By namespace of which something is not kept: the last list in which that was so. */
  readonly #short = new Map<string, number>();

  constructor(options: SharesOptions) {
    this.#options = options;
  }

  /** Why an object of which nothing is known may be there all the same; undefined if all of its namespace is kept. @param name `NAMESPACE/NAME` */
  missing(name: string): string | undefined {
    const namespace = namespaceOf(name);
    return this.#short.has(namespace) ? this.#options.why(namespace) : undefined;
  }

  /** Gives back what an object had, and lets it take what it has now. @param name `NAMESPACE/NAME` */
  keep<K>(name: string, keep: (part: Part) => K): K {
    const namespace = namespaceOf(name);
    const total = getOrPut(this.#totals, namespace, () => ({
      bytes: 0,
      entries: 0,
      why: this.#options.why(namespace),
    }));
    const before = this.#held.get(name);
    before?.giveBack();
    const part = new Part(total);
    const kept = keep(part);
    if (part.entries > 0) this.#held.set(name, part);
    else this.#held.delete(name);
    if (total.entries === 0) this.#totals.delete(namespace);
    const isLess = before && (part.bytes < before.bytes || part.entries < before.entries);
    if (isLess && this.#short.has(namespace)) this.freed = true;
    if (part.short !== undefined) this.#misses(namespace, part.short);
    return kept;
  }

  /** An object is gone. What it had is free again; if it had nothing, it may be the only one that had no room. */
  forget(name: string): void {
    if (!this.#held.has(name) && this.#short.has(namespaceOf(name))) this.freed = true;
    this.keep(name, () => {});
  }

  /** A list begins: each object comes again. */
  listing(): void {
    this.#list++;
    this.freed = false;
  }

  listed(): void {
    for (const [namespace, list] of this.#short) {
      if (list === this.#list) continue;
      this.#short.delete(namespace);
      this.#options.short(namespace, undefined);
    }
  }

  #misses(namespace: string, why: string): void {
    const isNew = !this.#short.has(namespace);
    this.#short.set(namespace, this.#list);
    if (isNew) this.#options.short(namespace, why);
  }
}

/** @param name `NAMESPACE/NAME` */
export function namespaceOf(name: string): string {
  return name.slice(0, name.indexOf('/'));
}

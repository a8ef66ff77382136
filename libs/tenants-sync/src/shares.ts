import { getOrPut } from '@isthmus/runtime';
import { SYNC } from './defaults.ts';

/** What is kept, in bytes of what authors say, and in entries: objects, their keys, the namespaces that they allow. */
interface Held {
  bytes: number;
  entries: number;
}

/** What an object takes of its namespace's share. */
export class Part implements Held {
  bytes = 0;
  entries = 0;
  /** Whether something of it did not fit. */
  short = false;
  /** Of its namespace. */
  readonly #total: Held;

  constructor(total: Held) {
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
      this.short ||= needed;
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
  readonly #held = new Map<string, Part>();
  readonly #totals = new Map<string, Held>();
  /** How many lists have begun. */
  #list = 0;
  /** By namespace of which something is not kept: the last list in which that was so. */
  readonly #short = new Map<string, number>();

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
    const total = getOrPut(this.#totals, namespace, () => ({ bytes: 0, entries: 0 }));
    const before = this.#held.get(name);
    before?.giveBack();
    const part = new Part(total);
    const kept = keep(part);
    if (part.entries > 0) this.#held.set(name, part);
    else this.#held.delete(name);
    if (total.entries === 0) this.#totals.delete(namespace);
    const isLess = before && (part.bytes < before.bytes || part.entries < before.entries);
    if (isLess && this.#short.has(namespace)) this.freed = true;
    if (part.short) this.#misses(namespace);
    return kept;
  }

  /** What it had is free again. */
  forget(name: string): void {
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
      this.#failed(namespace, undefined);
    }
  }

  #misses(namespace: string): void {
    if (!this.#short.has(namespace)) this.#failed(namespace, new Error(this.why(namespace)));
    this.#short.set(namespace, this.#list);
  }
}

function namespaceOf(name: string): string {
  return name.slice(0, name.indexOf('/'));
}

import { Grouped, LruMap } from '@isthmus/runtime';
import { ADMIN } from '../defaults.ts';

/** Something that happened, and with what it shares its places. */
interface Item<Kinds, Kind extends keyof Kinds = keyof Kinds> {
  readonly kind: Kind & string;
  /** A tenant; of a refusal the port. */
  readonly owner: string;
  /** What may happen again and again: an agent or hub, a peer that is refused. Empty if each is by itself. */
  readonly source: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
  readonly value: Kinds[Kind];
}

/**
 * What happened lately, up to so much. Where it is too much, those of a kind and owner that have most lose the first of them, so that no
 * tenant hides what is of another, and no port what was refused at another; and a source loses its own first. It is kept in the order in
 * which it came: what was told late happened before others, and costs no more than they do.
 */
export class FairRing<Kinds> {
  readonly #most: number;
  readonly #ofSource: number;
  readonly #byOwner = new Grouped<Item<Kinds>>();
  readonly #bySource = new Grouped<Item<Kinds>>();
  /** How many of each kind and owner are not kept, and when the last of them happened. */
  readonly #forgotten: Map<string, { readonly count: number; readonly at: number }>;

  constructor(most: number, ofSource = 1) {
    this.#most = most;
    this.#ofSource = ofSource;
    this.#forgotten = new LruMap(most);
  }

  /** In the order in which they came. */
  *of<Kind extends keyof Kinds>(kind: Kind & string, owner?: string): Iterable<Kinds[Kind]> {
    const items = owner === undefined ? this.#byOwner.all : (this.#byOwner.of(`${kind} ${owner}`) ?? []);
    for (const item of items) if (item.kind === kind) yield item.value as Kinds[Kind];
  }

  /** How many of the hour are not kept. */
  forgotten(kind: keyof Kinds & string, owner: string | undefined, since: number): number {
    let sum = 0;
    for (const [key, { count, at }] of this.#forgotten) {
      if (at < since) this.#forgotten.delete(key);
      else if (owner === undefined ? key.startsWith(`${kind} `) : key === `${kind} ${owner}`) sum += count;
    }
    return sum;
  }

  /** Returns the last of a source, which is taken out. */
  take(source: string): Item<Kinds> | undefined {
    const last = [...(this.#bySource.of(source) ?? [])].at(-1);
    if (last) this.#delete(last);
    return last;
  }

  keep<Kind extends keyof Kinds>(item: Item<Kinds, Kind>): void {
    this.#byOwner.add(keyOf(item), item);
    if (item.source !== '') this.#bySource.add(item.source, item);
    const own = this.#bySource.of(item.source);
    if (own && own.size > this.#ofSource) this.#forget(own);
    if (this.#byOwner.size <= this.#most) return;
    const since = Date.now() - ADMIN.historyMs;
    for (const first of this.#byOwner.all) {
      if (first.at >= since) break;
      this.#delete(first);
    }
    if (this.#byOwner.size > this.#most) this.#forget(this.#byOwner.most);
  }

  #forget(items: ReadonlySet<Item<Kinds>> | undefined): void {
    const [first] = items ?? [];
    if (!first) return;
    this.#delete(first);
    const { count, at } = this.#forgotten.get(keyOf(first)) ?? { count: 0, at: 0 };
    this.#forgotten.set(keyOf(first), { count: count + 1, at: Math.max(at, first.at) });
  }

  #delete(item: Item<Kinds>): void {
    this.#byOwner.delete(keyOf(item), item);
    this.#bySource.delete(item.source, item);
  }
}

function keyOf({ kind, owner }: { readonly kind: string; readonly owner: string }): string {
  return `${kind} ${owner}`;
}

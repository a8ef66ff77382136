import { getOrPut } from '@isthmus/tunnel';
import type { Problem } from './tenant-file/read.ts';

/** What a tenant alone may have. */
export interface Claimed {
  readonly what: string;
  /** What makes it that. Default: `what`. */
  readonly key?: string;
  /** The part of it that is claimed: different parts do not clash. Unset: all of it. */
  readonly part?: string | undefined;
  /** Where its file says so. */
  readonly at: string;
  /** Whether others may have it too, if they say so as well. */
  readonly shared?: boolean;
  /** How two tenants can both have it. */
  readonly fix?: string;
}

/** What another file has, and where a file claims it. */
export type Clash = Pick<Problem, 'at' | 'message'>;

/** If there are several, all share it. */
interface Holders {
  shared: boolean;
  readonly paths: Set<string>;
}

/** Who has a key: all of it, and parts of it. */
interface Held {
  whole: Holders | undefined;
  /** Unset while nobody has a part. */
  parts: Map<string, Holders> | undefined;
}

interface Place {
  readonly key: string;
  readonly part: string | undefined;
  readonly shared: boolean;
}

/** Who has what a tenant alone may have: finds what two tenants' files both claim. */
export class Clashes {
  readonly #byKey = new Map<string, Held>();
  /** By path. */
  readonly #held = new Map<string, readonly Place[]>();

  /** Notes what a file claims, in place of what it claimed before. @returns what another one has; then nothing was noted */
  take(path: string, claimed: readonly Claimed[]): Clash[] {
    const clashes = claimed.flatMap((each) => {
      const [other] = this.#others(path, each);
      if (other === undefined) return [];
      const { what, at, fix } = each;
      return [{ at, message: `${what} is in ${other} too${fix === undefined ? '' : `: ${fix}`}` }];
    });
    if (clashes.length > 0) return clashes;
    this.release(path);
    const places = [...placesOf(claimed).values()];
    for (const place of places) this.#put(place, path);
    if (places.length > 0) this.#held.set(path, places);
    return [];
  }

  /** Others may have what a file claimed. @param but what it still claims. If it shares that now, others may share it */
  release(path: string, but: readonly Claimed[] = []): void {
    const still = placesOf(but);
    const left: Place[] = [];
    for (const place of this.#held.get(path) ?? []) {
      const now = still.get(textOf(place));
      if (now) left.push(now);
      else this.#remove(place, path);
      if (now?.shared) this.#put(now, path);
    }
    if (left.length === 0) this.#held.delete(path);
    else this.#held.set(path, left);
  }

  /**
   * Gives a file back what it had. Files that have taken some of it since get back what they had, too.
   * @param had no two files had the same
   * @returns the paths of all that got back what they had
   */
  giveBack(path: string, had: (path: string) => readonly Claimed[]): ReadonlySet<string> {
    const paths = new Set([path]);
    // The set grows meanwhile.
    for (const each of paths) {
      this.release(each);
      for (const claimed of had(each)) for (const other of this.#others(each, claimed)) paths.add(other);
    }
    for (const each of paths) this.take(each, had(each));
    return paths;
  }

  /** Others that have it, or a part that overlaps, and do not share it with this one. */
  *#others(path: string, { what, key = what, part, shared = false }: Claimed): Generator<string> {
    const { whole, parts } = this.#byKey.get(key) ?? NOBODY;
    const overlapping = part === undefined ? [whole, ...(parts?.values() ?? [])] : [whole, parts?.get(part)];
    for (const holders of overlapping) {
      if (!holders || (shared && holders.shared)) continue;
      for (const other of holders.paths) if (other !== path) yield other;
    }
  }

  #put({ key, part, shared }: Place, path: string): void {
    const held = getOrPut(this.#byKey, key, () => ({ ...NOBODY }));
    const holders = holdersOf(held, part) ?? { shared, paths: new Set() };
    holders.shared = shared;
    holders.paths.add(path);
    if (part === undefined) held.whole = holders;
    else {
      held.parts ??= new Map();
      held.parts.set(part, holders);
    }
  }

  #remove({ key, part }: Place, path: string): void {
    const held = this.#byKey.get(key);
    const holders = held && holdersOf(held, part);
    holders?.paths.delete(path);
    if (!held || !holders || holders.paths.size > 0) return;
    if (part === undefined) held.whole = undefined;
    else held.parts?.delete(part);
    if (held.parts?.size === 0) held.parts = undefined;
    if (!held.whole && !held.parts) this.#byKey.delete(key);
  }
}

const NOBODY: Held = { whole: undefined, parts: undefined };

function holdersOf({ whole, parts }: Held, part: string | undefined): Holders | undefined {
  return part === undefined ? whole : parts?.get(part);
}

/** By text. A file that lists something twice shares it only if it says so in both places. */
function placesOf(claimed: readonly Claimed[]): Map<string, Place> {
  const places = new Map<string, Place>();
  for (const { what, key = what, part, shared = false } of claimed) {
    const text = textOf({ key, part });
    places.set(text, { key, part, shared: shared && (places.get(text)?.shared ?? true) });
  }
  return places;
}

function textOf({ key, part }: Pick<Place, 'key' | 'part'>): string {
  return part === undefined ? key : `${key}\0${part}`;
}

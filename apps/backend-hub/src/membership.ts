import { type ControlMessage, type HubMember, MAX_HUBS_IN_MESSAGE, MEMBERSHIP_BEAT } from '@isthmus/transport';

/** A link to an agent, as far as this is concerned. */
export interface Listener {
  send(message: ControlMessage): void;
}

/**
 * Tells agents of the plane's hubs: all at a link's start, then what changed, and every `MEMBERSHIP_BEAT` at least that
 * nothing did, for agents do not believe for ever what nobody renews.
 */
export class Membership {
  readonly #listeners = new Set<Listener>();
  readonly #timer: NodeJS.Timeout;
  #hubs = new Map<string, HubMember>();
  #current = false;

  constructor() {
    this.#timer = setInterval(() => this.#tell([], []), MEMBERSHIP_BEAT);
    this.#timer.unref();
  }

  /** Hubs that take agents. */
  get live(): number {
    let live = 0;
    for (const { draining } of this.#hubs.values()) if (!draining) live++;
    return live;
  }

  /** @returns stops telling it */
  add(listener: Listener): () => void {
    const [first = [], ...rest] = portions([...this.#hubs.values()]);
    listener.send({ type: 'membership', current: this.#current, hubs: first });
    for (const changed of rest) {
      listener.send({ type: 'membership-change', current: this.#current, changed, gone: [] });
    }
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @param hubs all there are */
  update(hubs: Iterable<HubMember>): void {
    const before = this.#hubs;
    this.#hubs = new Map([...hubs].map((hub) => [hub.hubId, hub]));
    const changed = [...this.#hubs.values()].filter((hub) => !same(before.get(hub.hubId), hub));
    const gone = [...before.keys()].filter((hubId) => !this.#hubs.has(hubId));
    if (changed.length > 0 || gone.length > 0) this.#tell(changed, gone);
  }

  /** Whether the registry answers: what is told is up to date then, and a new session becomes known to gateways. */
  registry(current: boolean): void {
    if (this.#current === current) return;
    this.#current = current;
    this.#tell([], []);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#listeners.clear();
  }

  #tell(changed: readonly HubMember[], gone: readonly string[]): void {
    const changes = portions(changed);
    const ends = portions(gone);
    for (let at = 0; at < Math.max(1, changes.length, ends.length); at++) {
      const part = { changed: changes[at] ?? [], gone: ends[at] ?? [] };
      for (const listener of this.#listeners) {
        listener.send({ type: 'membership-change', current: this.#current, ...part });
      }
    }
  }
}

function portions<T>(list: readonly T[]): T[][] {
  const parts: T[][] = [];
  for (let at = 0; at < list.length; at += MAX_HUBS_IN_MESSAGE) parts.push(list.slice(at, at + MAX_HUBS_IN_MESSAGE));
  return parts;
}

function same(a: HubMember | undefined, b: HubMember): boolean {
  return a?.generation === b.generation && a.draining === b.draining && a.address === b.address && a.zone === b.zone;
}

import type { Change, HubRecord, Quarantine, SessionRecord, Snapshot } from '@isthmus/tunnel';
import { Copy } from '../copy.ts';
import type { Registry, WatchListener } from '../registry.ts';

const DEADLINE_MS = 60_000;

/** A watcher that keeps a copy from what it receives, as a gateway does, and counts the calls. */
export class Observer implements WatchListener {
  readonly changes: Change[] = [];
  readonly states: { readonly up: boolean; readonly detail: string }[] = [];
  snapshots = 0;
  answers = 0;
  #copy = new Copy();
  readonly #stop = new AbortController();
  #waiting: (() => void)[] = [];

  constructor(registry: Registry) {
    registry.watch(this, this.#stop.signal);
  }

  snapshot(snapshot: Snapshot): void {
    this.snapshots++;
    this.#copy = new Copy(snapshot);
    this.#moved();
  }

  change(change: Change): void {
    this.changes.push(change);
    this.#copy.apply(change);
    this.#moved();
  }

  answered(): void {
    this.answers++;
    this.#moved();
  }

  state(up: boolean, detail: string): void {
    this.states.push({ up, detail });
    this.#moved();
  }

  get hubs(): string[] {
    return this.#copy.hubIds().sort();
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#copy.hub(hubId);
  }

  get sessions(): SessionRecord[] {
    return [...this.#copy.snapshot().sessions];
  }

  get sessionIds(): string[] {
    return this.sessions.map(({ sessionId }) => sessionId).sort();
  }

  /** The ids of the agents in quarantine, with the reasons. */
  get quarantined(): Record<string, string | undefined> {
    const byId = (quarantine: Quarantine) => [quarantine.agentId, quarantine.reason] as const;
    return Object.fromEntries(this.#copy.quarantines.inForce().map(byId));
  }

  has(sessionId: string): boolean {
    return this.sessionIds.includes(sessionId);
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Resolves when `holds` returns true. Checks it on every call from the registry. */
  async until(what: string, holds: () => boolean): Promise<void> {
    const deadline = performance.now() + DEADLINE_MS;
    while (!holds()) {
      const left = deadline - performance.now();
      if (left <= 0) throw new Error(`not within ${DEADLINE_MS} ms: ${what}; sessions: ${this.sessionIds.join(' ')}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#waiting.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #moved(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}

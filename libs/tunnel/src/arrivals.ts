/** Told of a session that came, or of a hub that can be reached again, by the hub's id. */
export type Arrived = (hubId: string) => void;

/** Who waits for a session of a tenant. */
export class Arrivals {
  readonly #waiting = new Map<string, Set<Arrived>>();

  /** Calls back with each arrival. @returns gives up waiting */
  wait(tenant: string, arrived: Arrived): () => void {
    const waiting = this.#waiting.get(tenant) ?? new Set();
    this.#waiting.set(tenant, waiting.add(arrived));
    return () => {
      waiting.delete(arrived);
      if (waiting.size === 0 && this.#waiting.get(tenant) === waiting) this.#waiting.delete(tenant);
    };
  }

  tell(tenant: string, hubId: string): void {
    // A copy: who is told may give up, or wait anew.
    for (const arrived of [...(this.#waiting.get(tenant) ?? [])]) arrived(hubId);
  }
}

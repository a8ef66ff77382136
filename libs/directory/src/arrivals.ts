/** Called with the hub's id when a session arrives, or when a hub is reachable again. */
export type Arrived = (hubId: string) => void;

/** Callbacks that wait for a session, by tenant. */
export class Arrivals {
  readonly #waiting = new Map<string, Set<Arrived>>();

  /** Calls back on each arrival. @returns a function that stops waiting */
  wait(tenant: string, arrived: Arrived): () => void {
    const waiting = this.#waiting.get(tenant) ?? new Set();
    this.#waiting.set(tenant, waiting.add(arrived));
    return () => {
      waiting.delete(arrived);
      if (waiting.size === 0 && this.#waiting.get(tenant) === waiting) this.#waiting.delete(tenant);
    };
  }

  tell(tenant: string, hubId: string): void {
    // Iterate over a copy: a callback may stop waiting, or wait again.
    for (const arrived of [...(this.#waiting.get(tenant) ?? [])]) arrived(hubId);
  }
}

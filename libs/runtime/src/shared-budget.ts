/**
 * Memory that the tunnels of a process may still use beyond what each has in any case, in bytes. One group may use all of it. Once a
 * second one has asked, no group gets more than what it would leave to the others: the first half of the budget, the second a quarter,
 * and so on. So none can take all.
 */
export class SharedBudget {
  #left: number;
  readonly #taken = new Map<string, number>();
  #first: string | undefined;
  #shared = false;

  constructor(bytes: number) {
    this.#left = bytes;
  }

  get left(): number {
    return this.#left;
  }

  /** @param group a tenant's; without one there is no share to keep to */
  take(bytes: number, group?: string): boolean {
    if (bytes > this.#left) return false;
    if (group !== undefined) {
      this.#first ??= group;
      this.#shared ||= group !== this.#first;
      const taken = (this.#taken.get(group) ?? 0) + bytes;
      if (this.#shared && taken > this.#left - bytes) return false;
      this.#taken.set(group, taken);
    }
    this.#left -= bytes;
    return true;
  }

  /** @param group that took them */
  give(bytes: number, group?: string): void {
    this.#left += bytes;
    if (group === undefined) return;
    const taken = (this.#taken.get(group) ?? 0) - bytes;
    if (taken > 0) this.#taken.set(group, taken);
    else this.#taken.delete(group);
  }
}

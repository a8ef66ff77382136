/**
 * What several groups share: memory that the tunnels of a process may still use beyond what each has in any case, in bytes, or places. One
 * group may use all of it. Once a second one has asked, no group gets more than what it would leave to the others: the first half of the
 * budget, the second a quarter, and so on. So none can take all.
 */
export class SharedBudget {
  #left: number;
  readonly #taken = new Map<string, number>();
  #first: string | undefined;
  #shared: boolean;

  /** @param shared whether there are several groups in any case, so that not even the first may use all */
  constructor(amount: number, shared = false) {
    this.#left = amount;
    this.#shared = shared;
  }

  get left(): number {
    return this.#left;
  }

  /** @param group a tenant's; without one there is no share to keep to */
  take(amount: number, group?: string): boolean {
    if (amount > this.#left) return false;
    if (group !== undefined) {
      this.#first ??= group;
      this.#shared ||= group !== this.#first;
      const taken = (this.#taken.get(group) ?? 0) + amount;
      if (this.#shared && taken > this.#left - amount) return false;
      this.#taken.set(group, taken);
    }
    this.#left -= amount;
    return true;
  }

  /** @param group that took them */
  give(amount: number, group?: string): void {
    this.#left += amount;
    if (group === undefined) return;
    const taken = (this.#taken.get(group) ?? 0) - amount;
    if (taken > 0) this.#taken.set(group, taken);
    else this.#taken.delete(group);
  }
}

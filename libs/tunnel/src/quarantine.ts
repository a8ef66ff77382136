import type { AgentName, Quarantine } from './records.ts';

/** Agents in quarantine at a time: operators put them there one by one, and each copy of the registry holds them all. */
export const MAX_QUARANTINED = 1_000;

/** What operators said last about each agent: of two words about one, the later holds. */
export class Quarantines {
  readonly #byAgent = new Map<string, Quarantine>();
  #inForce = 0;

  get size(): number {
    return this.#inForce;
  }

  /** @returns whether it was news */
  apply(quarantine: Quarantine): boolean {
    const key = keyOf(quarantine);
    const known = this.#byAgent.get(key);
    if (known && known.version >= quarantine.version) return false;
    this.#byAgent.set(key, quarantine);
    this.#inForce += count(quarantine) - count(known);
    if (this.#byAgent.size - this.#inForce > MAX_QUARANTINED) this.#forgetOldest();
    return true;
  }

  /** What was said of an agent that is in quarantine. */
  of(agent: AgentName): Quarantine | undefined {
    const said = this.#inForce === 0 ? undefined : this.#byAgent.get(keyOf(agent));
    return said?.reason === undefined ? undefined : said;
  }

  /** The last word about an agent, also that it was let out. */
  last(agent: AgentName): Quarantine | undefined {
    return this.#byAgent.get(keyOf(agent));
  }

  /** Every last word. */
  all(): Quarantine[] {
    return [...this.#byAgent.values()];
  }

  inForce(): Quarantine[] {
    return this.all().filter(({ reason }) => reason !== undefined);
  }

  /** Of those that were let out. */
  #forgetOldest(): void {
    let oldest: Quarantine | undefined;
    for (const said of this.#byAgent.values()) {
      if (said.reason === undefined && (!oldest || said.version < oldest.version)) oldest = said;
    }
    if (oldest) this.#byAgent.delete(keyOf(oldest));
  }
}

function count(quarantine: Quarantine | undefined): number {
  return quarantine?.reason === undefined ? 0 : 1;
}

/** Ids may hold any character, so the length says where one ends. */
function keyOf({ tenant, agentId }: AgentName): string {
  return `${tenant.length} ${tenant} ${agentId}`;
}

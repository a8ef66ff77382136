import type { AgentName } from '@isthmus/tunnel';
import { agentKey } from '@isthmus/tunnel';
import type { Quarantine, SessionRecord } from './records.ts';

/**
 * The most agents of one tenant in quarantine at a time, and the most released ones that are remembered. Operators add them one by one, and
 * each copy of the registry holds them all. All tenants together have room for twice as many, and none gets more of it than it leaves to
 * others.
 */
export const MAX_QUARANTINED = 1_000;

type AgentOfSession = Pick<SessionRecord, 'tenant' | 'agentId' | 'credential'>;

/** The latest statement of an operator about each agent. An earlier one that arrives late is ignored. */
export class Quarantines {
  readonly #byAgent = new Map<string, Quarantine>();
  #inForce = 0;

  get size(): number {
    return this.#inForce;
  }

  /** @returns whether the statement was new */
  apply(quarantine: Quarantine): boolean {
    const key = agentKey(quarantine);
    const known = this.#byAgent.get(key);
    if (known && known.version >= quarantine.version) return false;
    this.#byAgent.set(key, quarantine);
    this.#inForce += count(quarantine) - count(known);
    if (this.#byAgent.size - this.#inForce > MAX_QUARANTINED) this.#forgetOldest();
    return true;
  }

  /** The quarantine that an agent is in, if any. */
  of(agent: AgentName): Quarantine | undefined {
    const said = this.#inForce === 0 ? undefined : this.#byAgent.get(agentKey(agent));
    return said?.reason === undefined ? undefined : said;
  }

  /** The quarantine that a session's agent is in: by its id, or by the name in its credential, which another id does not change. */
  ofSession(session: AgentOfSession): Quarantine | undefined {
    return this.of(session) ?? this.of(byCredential(session));
  }

  /** The last statement about an agent, even if it was released. */
  last(agent: AgentName): Quarantine | undefined {
    return this.#byAgent.get(agentKey(agent));
  }

  /** The last statement about every agent. */
  all(): Quarantine[] {
    return [...this.#byAgent.values()];
  }

  inForce(): Quarantine[] {
    return this.all().filter(({ reason }) => reason !== undefined);
  }

  /** Forgets the oldest statement about a released agent. */
  #forgetOldest(): void {
    let oldest: Quarantine | undefined;
    for (const said of this.#byAgent.values()) {
      if (said.reason === undefined && (!oldest || said.version < oldest.version)) oldest = said;
    }
    if (oldest) this.#byAgent.delete(agentKey(oldest));
  }
}

function count(quarantine: Quarantine | undefined): number {
  return quarantine?.reason === undefined ? 0 : 1;
}

/** The agent by the name in its credential, if it has one of its own. */
export function byCredential({ tenant, agentId, credential = agentId }: AgentOfSession): AgentName {
  return { tenant, agentId: credential };
}

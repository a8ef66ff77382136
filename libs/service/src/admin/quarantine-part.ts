import type { AgentName, Directory, Quarantine } from '@isthmus/tunnel';

/** Agents that take no new dials, in the whole plane. */
export interface QuarantinePart {
  /** @param reason undefined lets the agent out. Rejects when the registry does not answer. */
  set(agent: AgentName, reason: string | undefined): Promise<unknown>;
  /** Why an agent is in quarantine, or undefined. */
  reasonFor(agent: AgentName): string | undefined;
  list(): Iterable<Quarantine>;
}

/** Quarantine as the registry keeps it, and as this process's copy of it has it. */
export function quarantineIn(
  registry: { quarantine: QuarantinePart['set'] },
  directory: Pick<Directory, 'quarantineOf' | 'quarantined'>,
): QuarantinePart {
  return {
    set: (agent, reason) => registry.quarantine(agent, reason),
    reasonFor: (agent) => directory.quarantineOf(agent)?.reason,
    list: () => directory.quarantined(),
  };
}

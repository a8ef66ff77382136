import type { Directory, Quarantine } from '@isthmus/directory';
import type { AgentName } from '@isthmus/tunnel';

/** Agents that get no new dials, in the whole plane. */
export interface QuarantinePart {
  /** @param reason undefined releases the agent. Rejects if the registry does not answer. */
  set(agent: AgentName, reason: string | undefined): Promise<unknown>;
  /** Returns why an agent is in quarantine, or undefined if it is not. */
  reasonFor(session: AgentName & { readonly credential?: string }): string | undefined;
  list(): Iterable<Quarantine>;
}

/** Returns quarantine that is written to the registry and read from this process's copy of it. */
export function quarantineIn(
  registry: { quarantine: QuarantinePart['set'] },
  directory: Pick<Directory, 'quarantines'>,
): QuarantinePart {
  return {
    set: (agent, reason) => registry.quarantine(agent, reason),
    reasonFor: (session) => directory.quarantines.ofSession(session)?.reason,
    list: () => directory.quarantines.inForce(),
  };
}

import type { KnownTenant } from '@isthmus/admin';
import type { Tenant } from '@isthmus/admission';
import { type DialLimits, type DialUse, getOrPut, identifierCount, type SessionInfo } from '@isthmus/tunnel';
import type { Gateway, Hub } from '../roles.ts';

type Use = KnownTenant['use'];

export interface UseOptions {
  readonly gateway?: Pick<Gateway, 'use'> | undefined;
  readonly hub?: Pick<Hub, 'sessions' | 'renewals'> | undefined;
}

/** Returns what a tenant uses of the limits of this process: dials and tunnels at a gateway, agents at a hub. */
export function useIn({ gateway, hub }: UseOptions): (tenant: Tenant) => Use {
  const held = hub && heldBy(hub.sessions());
  return (tenant) => ({
    ...(hub && heldUse(tenant, held?.get(tenant.name), hub.renewals(tenant.name))),
    ...(gateway && dialUse(tenant, gateway)),
  });
}

function dialUse({ name, limits }: Tenant, gateway: Pick<Gateway, 'use'>): Use {
  const use = gateway.use(name);
  const of = (limit: keyof DialLimits & keyof DialUse) => {
    return { [limit]: { used: use?.[limit] ?? 0, most: limits[limit] } };
  };
  // Without a limit, bytes per second are not counted.
  const paced = limits.bytesPerSecond < Number.POSITIVE_INFINITY;
  return {
    ...of('pendingDials'),
    ...of('tunnels'),
    ...of('dialsPerSecond'),
    ...(paced && of('bytesPerSecond')),
    ...of('bytesQueued'),
  };
}

/** What a tenant's agents hold at a hub. */
class Held {
  /** By agent. */
  readonly sessionsOf = new Map<string, number>();
  sessions = 0;
  /** Sessions of the agent with most. */
  sessionsPerAgent = 0;
  /** Identifiers of the session with most. */
  identifiers = 0;
}

function heldUse({ limits }: Tenant, held: Held | undefined, renewals: number): Use {
  return {
    agents: { used: held?.sessionsOf.size ?? 0, most: limits.agents },
    sessions: { used: held?.sessions ?? 0, most: limits.sessions },
    sessionsPerAgent: { used: held?.sessionsPerAgent ?? 0, most: limits.sessionsPerAgent },
    identifiers: { used: held?.identifiers ?? 0, most: limits.identifiers },
    renewalsPerSecond: { used: renewals, most: limits.renewalsPerSecond },
  };
}

function heldBy(sessions: Iterable<SessionInfo>): Map<string, Held> {
  const all = new Map<string, Held>();
  for (const { tenant, agentId, identifiers } of sessions) {
    const held = getOrPut(all, tenant, () => new Held());
    const own = (held.sessionsOf.get(agentId) ?? 0) + 1;
    held.sessionsOf.set(agentId, own);
    held.sessions++;
    held.sessionsPerAgent = Math.max(held.sessionsPerAgent, own);
    held.identifiers = Math.max(held.identifiers, identifierCount(identifiers));
  }
  return all;
}

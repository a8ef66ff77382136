import type { SessionInfo, SessionRecord, Strategy } from '@isthmus/tunnel';
import type { Subscriptions } from '../subscribe.ts';

/** What counts of a session here: an agent that can be dialled through. */
export type Backend = Pick<SessionRecord, 'tenant' | 'agentId' | 'identifiers'>;

/** The sessions of a hub, by its own events. */
export class OpenSessions {
  readonly #sessions = new Map<string, SessionInfo>();

  readonly subscriptions: Subscriptions = {
    'session:open': (session) => {
      this.#sessions.set(session.sessionId, session);
    },
    'session:close': (session) => {
      this.#sessions.delete(session.sessionId);
    },
  };

  values(): Iterable<SessionInfo> {
    return this.#sessions.values();
  }
}

/**
 * How many backends a strategy can choose among, as upstream counts them: agent ids (several sessions of an agent are one
 * backend), for destHost the addresses and names that agents announce, for destCIDR their networks. A draining agent counts.
 */
export function countBackends(strategy: Strategy, backends: Iterable<Backend>): number {
  const distinct = new Set<string>();
  for (const backend of backends) {
    for (const name of backendNames(strategy, backend)) distinct.add(`${backend.tenant} ${name}`);
  }
  return distinct.size;
}

function backendNames(strategy: Strategy, { agentId, identifiers }: Backend): readonly string[] {
  switch (strategy) {
    case 'default':
      return [agentId];
    case 'defaultRoute':
      return identifiers.defaultRoute ? [agentId] : [];
    case 'destHost':
      return [...identifiers.ipv4, ...identifiers.ipv6, ...identifiers.host];
    case 'destCIDR':
      return identifiers.cidr;
  }
}

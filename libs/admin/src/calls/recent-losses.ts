import type { Directory, Member, SessionRecord } from '@isthmus/directory';
import type { adminApi } from '@isthmus/proto/admin';
import type { AgentIdentifiers, AgentName, PlaneEvents } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import type { Recent } from './recent.ts';

/** A gateway that is off the list of members, a hub that this gateway has lost, or an agent without a session known here. */
export interface Loss extends Omit<adminApi.Loss, 'role' | 'identifiers'> {
  readonly role: 'gateway' | 'hub' | 'agent';
  readonly identifiers?: AgentIdentifiers;
}

/** A member on the plane's list, and for how long it has been silent, in milliseconds. */
type Listed = Member & { readonly quietMs: number };

/** A gateway as the list last had it, and whether the newest list lacked it. */
interface Followed {
  readonly last: Listed;
  readonly missed: boolean;
}

/**
 * Notes gateways, hubs and agents that went away, until they come back. The plane itself forgets them within seconds, and nothing else names
 * what is missing.
 */
export class Losses {
  readonly #recent: Pick<Recent, 'lost' | 'found'>;
  /** Sessions of this process's hub whose agents said that they were leaving. */
  readonly #leaving = new Set<string>();
  readonly #directory: Pick<Directory, 'hub' | 'ofAgent'>;
  /** By id. */
  #gateways = new Map<string, Followed>();

  /** @param follows whether the directory has the sessions of all hubs, as a gateway's has */
  constructor(
    events: PlaneEvents,
    recent: Pick<Recent, 'lost' | 'found'>,
    directory: Pick<Directory, 'hub' | 'ofAgent' | 'watch'>,
    follows: boolean,
  ) {
    this.#recent = recent;
    this.#directory = directory;
    events.on('peer:open', (id) => recent.found({ role: 'hub', tenant: '', id }));
    events.on('peer:close', (hubId, address, reason) => this.#hubLost(hubId, address, reason));
    if (follows) {
      directory.watch({ came: (session) => this.#agentCame(session), went: (session) => this.#agentWent(session) });
      return;
    }
    events.on('session:open', (session) => this.#agentCame(session));
    events.on('session:drain', ({ sessionId }) => this.#leaving.add(sessionId));
    events.on('session:close', (session, reason) => {
      const left = this.#leaving.delete(session.sessionId);
      this.#agentLost(session, { remote: session.remote, reason, left });
    });
  }

  /**
   * Takes the plane's list of members, whenever it comes. A server that is a hub too is missed as a hub.
   * @param members a complete list. After a time without one, each has until the second list to write again
   */
  listed(members: readonly Listed[]): void {
    const followed = new Map<string, Followed>();
    for (const last of members) {
      if (!last.roles.includes('gateway') || last.roles.includes('hub')) continue;
      followed.set(last.memberId, { last, missed: false });
      this.#recent.found({ role: 'gateway', tenant: '', id: last.memberId });
    }
    for (const [id, { last, missed }] of this.#gateways) {
      if (followed.has(id)) continue;
      if (missed) this.#gatewayLost(last);
      else followed.set(id, { last, missed: true });
    }
    this.#gateways = followed;
  }

  #hubLost(id: string, remote: string, reason: string): void {
    const left = this.#directory.hub(id)?.draining ?? false;
    this.#recent.lost({ role: 'hub', tenant: '', id, hubId: '', remote, reason, left });
  }

  #gatewayLost({ memberId: id, adminAddress: remote, quietMs }: Listed): void {
    const reason = `silent for ${Math.round(quietMs / 1000)} s`;
    this.#recent.lost({
      role: 'gateway',
      tenant: '',
      id,
      hubId: '',
      remote,
      reason,
      left: quietMs < ADMIN.silentMemberMs,
    });
  }

  #agentCame({ tenant, agentId }: AgentName): void {
    this.#recent.found({ role: 'agent', tenant, id: agentId });
  }

  #agentWent(session: SessionRecord): void {
    if ([...this.#directory.ofAgent(session)].length > 0) return;
    const hub = this.#directory.hub(session.hubId);
    this.#agentLost(session, { remote: '', reason: '', left: (session.draining ?? false) || (hub?.draining ?? false) });
  }

  #agentLost(
    { tenant, agentId: id, hubId, identifiers }: Pick<SessionRecord, 'tenant' | 'agentId' | 'hubId' | 'identifiers'>,
    how: Pick<Loss, 'remote' | 'reason' | 'left'>,
  ): void {
    this.#recent.lost({ role: 'agent', tenant, id, hubId, identifiers, ...how });
  }
}

import type { Hub, Loss, Members, Session, Status, Witness } from './evidence.ts';

/** Messages for tests, with the fields that a test gives. */

export function aSession(given: Partial<Session> = {}): Session {
  return {
    sessionId: `${given.agentId ?? 'a'} at ${given.hubId ?? 'h1'}`,
    tenant: 'default',
    agentId: 'a',
    hubId: 'h1',
    protocol: 1,
    remote: '10.0.0.1:5000',
    sinceMs: 1,
    identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false },
    draining: false,
    quarantined: false,
    quarantineReason: '',
    drainingSinceMs: 0,
    certificateEndsMs: 0,
    suspected: false,
    tunnels: 0,
    ...given,
  };
}

export function aHub(hubId: string, given: Partial<Hub> = {}): Hub {
  const addresses = { peerAddress: `${hubId}:8097`, agentAddress: `${hubId}:8091` };
  const counts = { sessions: 0, tunnels: 0, sinceMs: 1, rttMs: undefined };
  return { hubId, ...addresses, ...counts, zone: '', draining: false, link: 2, ...given };
}

export function aStatus(given: Partial<Status> = {}): Status {
  return {
    program: 'frontend-gw',
    roles: [1],
    memberId: 'g1',
    hubId: '',
    agentId: '',
    version: '1',
    runtime: 'node 24',
    startedMs: 1,
    nowMs: 1,
    zone: '',
    plane: 'isthmus',
    ready: true,
    checks: [],
    sessions: 0,
    tunnels: 0,
    pendingDials: 0,
    parkedDials: 0,
    dialRates: [],
    slowest: [],
    refusals: [],
    notices: [],
    losses: [],
    failing: [],
    admission: 1,
    ...given,
  };
}

export function aList(given: Partial<Members> = {}): Members {
  return {
    members: [],
    membersError: '',
    hubs: [],
    registry: undefined,
    servers: [],
    serversWanted: 0,
    holds: [],
    nowMs: 0,
    ...given,
  };
}

export function aWitness(id: string, given: Partial<Witness> = {}): Witness {
  const status = aStatus({ memberId: id });
  return { id, address: `${id}:8095`, roles: ['gateway'], version: '1', status, list: aList(), aheadMs: 0, ...given };
}

/** An agent that had a session with h1. */
export function aLoss(id: string, given: Partial<Loss> = {}): Loss {
  const where = { tenant: 'default', hubId: 'h1', remote: '', reason: '', identifiers: undefined };
  return { role: 3, id, ...where, left: false, atMs: 1, ...given };
}

import type { AdminBackend, SeenLately } from '../backend.ts';
import type { RoutingPart } from '../calls/explain.ts';

/**
 * What a backend is to an operator of one tenant: nothing else can be read or changed through it, whatever a call's code does. What
 * concerns the whole process is left out.
 */
export function scopedTo(tenant: string, backend: AdminBackend): AdminBackend {
  const { kick, plane, quarantine, recent, routing, tenants } = backend;
  const own = (of: { readonly tenant: string }) => of.tenant === tenant;
  const sessions = () => [...backend.sessions()].filter(own);
  const tunnels = () => {
    const found = [...backend.tunnels()].filter(({ dial }) => own(dial));
    return Object.assign(found, { size: found.length });
  };
  const { sessions: kickSessions } = kick;
  return {
    identity: backend.identity,
    admission: () => backend.admission(),
    // Why a check fails may name others.
    checks: () => backend.checks().map(({ name, ok }) => ({ name, ok, detail: '' })),
    sessions,
    sessionCount: () => sessions().length,
    tunnels,
    recent: scopedRecent(tenant, recent),
    metrics() {
      throw new Error('only operators of the plane read all metrics');
    },
    flags: [],
    log: { ...backend.log, info: (...line) => backend.log.info(...line), recent: Object.assign([], { forgotten: 0 }) },
    kick: {
      // The id alone does not say whose tunnel it is.
      tunnel: (id, reason) => (tunnels().some(({ dial }) => dial.id === id) ? kick.tunnel(id, reason) : 0),
      ...(kickSessions && {
        sessions: (which, reason) => kickSessions((session) => own(session) && which(session), reason),
      }),
    },
    drain() {
      throw new Error('only operators of the plane drain');
    },
    plan: () => ({ sessions: 0, moves: [] }),
    // Why a link fails may name others.
    ...(plane && { plane: { ...plane, failureOf: () => undefined } }),
    ...(backend.holds && { holds: async () => ((await backend.holds?.()) ?? []).filter(own) }),
    ...(routing && { routing: scopedRouting(tenant, routing) }),
    ...(quarantine && {
      quarantine: {
        set: (agent, reason) => quarantine.set({ ...agent, tenant }, reason),
        reasonFor: (agent) => (own(agent) ? quarantine.reasonFor(agent) : undefined),
        list: () => [...quarantine.list()].filter(own),
      },
    }),
    ...(tenants && {
      tenants: {
        ...tenants,
        list: () => [...tenants.list()].filter(({ name }) => name === tenant),
        // Texts of files may name other tenants.
        problems: () => [],
        scraped: () => tenants.scraped(tenant),
      },
    }),
  };
}

function scopedRecent(tenant: string, recent: SeenLately): SeenLately {
  const own = (of: { readonly tenant: string }) => of.tenant === tenant;
  return {
    events: () => recent.events().filter(own),
    cuts: () => recent.cuts(tenant),
    refusals: () => [],
    losses: () => recent.losses().filter(own),
    slots: () => recent.slots(tenant),
    expect() {},
    parked: 0,
    pending: (role) => recent.pending(role, tenant),
    callersOf: () => recent.callersOf(tenant),
    find: (id, role) => [recent.find(id, role)].find((dial) => dial && own(dial)),
    watch: (watcher) => recent.watch((dial, again) => own(dial) && watcher(dial, again), tenant),
    dials: () => [...recent.dials()].filter(own),
  };
}

function scopedRouting(tenant: string, routing: RoutingPart): RoutingPart {
  return {
    ...routing,
    tenant,
    dial: (request) => routing.dial({ ...request, tenant }),
    lookups: (_of, host) => routing.lookups(tenant, host),
    route: (_of, host) => routing.route(tenant, host),
    policy: (_of, destination, caller) => routing.policy(tenant, destination, caller),
  };
}

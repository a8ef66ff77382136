import type { SessionWatcher } from '@isthmus/directory';
import { Census, ownSessions, type SessionCounter, showByName } from './census.ts';
import type { Families } from './families.ts';
import { type LimitedTenant, tenantLimitMetrics } from './tenants.ts';
import { keptMetrics } from './traffic.ts';

/** What a program knows about its plane. Read for each page. */
export interface PlaneState {
  readonly registry: {
    /** When the registry last answered, in milliseconds of `performance.now()`; undefined before, and with a registry in memory. */
    readonly lastAnswerAt: number | undefined;
    /** How many changes the registry had at that answer that this process had not read. */
    readonly behind: number;
  };
  /** Set for a gateway. */
  readonly gateway?: GatewayState;
  /** Set for a gateway: bytes that tunnels keep until their agents have them; undefined if tunnels are not resumed. */
  readonly kept?: () => number | undefined;
  /** Set for a gateway with tenants: what those that have dialled through it use. */
  readonly using?: () => Iterable<LimitedTenant>;
}

export interface GatewayState {
  /** The tenant of its callers. */
  readonly tenant: string;
  /** How many hubs should have a link, and how many of those have one. */
  links(): { readonly wanted: number; readonly up: number };
  /** Whether there is a way to dial through a hub. */
  reaches(hubId: string): boolean;
  /** Reports the existing sessions, then every change. @returns a function that stops watching */
  watch(watcher: SessionWatcher): () => void;
}

/** The metrics of a plane, as seen by one of its gateways or hubs. */
export function planeMetrics(families: Families, role: 'gateway' | 'hub', hasTenants: boolean) {
  let state: PlaneState | undefined;
  let unwatch = () => {};
  families.defer(() => unwatch());
  registryMetrics(families, () => state?.registry);
  const known = new Census();
  families.measured(
    'known_sessions',
    'Sessions that dials can use. A gateway counts those of all hubs, from its copy of the registry.',
    () => known.total,
  );
  const what = 'sessions that dials can use';
  const always = () => (state?.gateway ? [state.gateway.tenant] : []);
  showByName(families, 'tenant', 'sessions', what, () => known.tenants, always);
  showByName(families, 'hub', 'sessions', what, () => known.hubs);
  if (role === 'gateway') {
    coverageMetrics(families, known, () => state?.gateway);
    keptMetrics(families, () => state?.kept?.());
  }
  if (role === 'gateway' && hasTenants) tenantLimitMetrics(families, () => state?.using?.() ?? []);
  const counters: SessionCounter[] = [known];
  const all: SessionCounter = {
    count(session, by) {
      for (const counter of counters) counter.count(session, by);
    },
  };
  if (role === 'hub') families.on(ownSessions(all));
  return {
    /** Lets one more count the sessions that dials can use. Call before events come. */
    watch: (counter: SessionCounter) => void counters.push(counter),
    /** Call once, as soon as the program has its plane. */
    measure(seen: PlaneState): void {
      state = seen;
      if (seen.gateway)
        unwatch = seen.gateway.watch({ came: (each) => all.count(each, 1), went: (each) => all.count(each, -1) });
    },
  };
}

function registryMetrics(families: Families, registry: () => PlaneState['registry'] | undefined): void {
  const up = families.gauge('registry_up', '1 while the registry answers, 0 while it does not.');
  up.value = 1;
  const answered = () => registry()?.lastAnswerAt;
  families.measured(
    'registry_age_seconds',
    'Time since the registry last answered: the copy is at most this old.',
    () => {
      const at = answered();
      return at === undefined ? undefined : (performance.now() - at) / 1000;
    },
  );
  families.measured('registry_lag_changes', 'Changes in the registry that this process has not read.', () =>
    answered() === undefined ? undefined : registry()?.behind,
  );
  families.on({
    registry(state) {
      up.value = state === 'up' ? 1 : 0;
    },
  });
}

function coverageMetrics(families: Families, known: Census, gateway: () => GatewayState | undefined): void {
  families.measured('reachable_sessions', 'Known sessions whose hub this gateway can reach.', () => {
    let reachable = 0;
    for (const [hubId, sessions] of known.hubs) if (gateway()?.reaches(hubId)) reachable += sessions;
    return reachable;
  });
  families.measured(
    'hub_links_wanted',
    'Links to hubs that this gateway should have: to all hubs of the plane that do not drain, but its own.',
    () => gateway()?.links().wanted ?? 0,
  );
  families.measured(
    'hub_links',
    'Links to hubs that this gateway should have, and has.',
    () => gateway()?.links().up ?? 0,
  );
}

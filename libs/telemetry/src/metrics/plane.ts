import type { SessionWatcher } from '@isthmus/tunnel';
import type { Subscriptions } from '../subscribe.ts';
import { Census } from './census.ts';
import type { Families } from './families.ts';

/** What a program knows of its plane; read for each page. */
export interface PlaneSight {
  readonly registry: {
    /** When the registry last answered, in milliseconds of `performance.now()`; undefined before that, and if there is none to ask. */
    readonly lastAnswerAt: number | undefined;
    /** Changes that the registry held then and this process had not read. */
    readonly behind: number;
  };
  /** Set for a gateway. */
  readonly gateway?: GatewaySight;
}

export interface GatewaySight {
  /** The tenant of its callers. */
  readonly tenant: string;
  /** How many hubs should have a link, and how many of those have one. */
  links(): { readonly wanted: number; readonly up: number };
  /** Whether there is a way to dial through a hub. */
  reaches(hubId: string): boolean;
  /** Reports the existing sessions, then every change. @returns stops watching */
  watch(watcher: SessionWatcher): () => void;
}

export interface PlaneMetrics {
  readonly subscriptions: Subscriptions;
  /** Call once, when there is something to see. */
  see(sight: PlaneSight): void;
  close(): void;
}

/** Metrics of a plane, as one of its gateways or hubs sees it. */
export function planeMetrics(families: Families, role: 'gateway' | 'hub'): PlaneMetrics {
  let sight: PlaneSight | undefined;
  let unwatch = () => {};
  const registry = registryMetrics(families, () => sight?.registry);
  const known = new Census();
  families.measured(
    'known_sessions',
    'Current number of sessions that dials may go through: at a gateway those of all hubs, by its copy of the registry.',
    () => known.total,
  );
  known.show(families, 'sessions', 'sessions that dials may go through', () =>
    sight?.gateway ? [sight.gateway.tenant] : [],
  );
  if (role === 'gateway') coverageMetrics(families, known, () => sight?.gateway);
  const own: Subscriptions = {
    'session:open': (session) => known.came(session),
    'session:close': (session) => known.went(session),
  };
  return {
    subscriptions: role === 'hub' ? { ...registry, ...own } : registry,
    see(seen) {
      sight = seen;
      if (seen.gateway) unwatch = seen.gateway.watch(known);
    },
    close: () => unwatch(),
  };
}

function registryMetrics(families: Families, registry: () => PlaneSight['registry'] | undefined): Subscriptions {
  const up = families.gauge('registry_up', 'Whether the registry answers: 1, or 0 while dials rely on what is known.');
  up.set(1);
  const answered = () => registry()?.lastAnswerAt;
  families.measured(
    'registry_age_seconds',
    'Since the registry answered last, which is how old the copy is at most. Not there for a registry in memory.',
    () => {
      const at = answered();
      return at === undefined ? undefined : (performance.now() - at) / 1000;
    },
  );
  families.measured(
    'registry_lag_changes',
    'Changes that the registry held at its last answer and this process had not read. Not there for a registry in memory.',
    () => (answered() === undefined ? undefined : registry()?.behind),
  );
  return { registry: (state) => up.set(state === 'up' ? 1 : 0) };
}

function coverageMetrics(families: Families, known: Census, gateway: () => GatewaySight | undefined): void {
  families.measured(
    'reachable_sessions',
    'Those of the known sessions to whose hub this gateway has a way: a link, or the same process.',
    () => {
      let reachable = 0;
      for (const [hubId, sessions] of known.hubs()) if (gateway()?.reaches(hubId)) reachable += sessions;
      return reachable;
    },
  );
  families.measured(
    'hub_links_wanted',
    'Hubs of the plane to which this gateway should have a link: other than itself, and not draining.',
    () => gateway()?.links().wanted ?? 0,
  );
  families.measured(
    'hub_links',
    'Those of the wanted hubs to which this gateway has a link. One to a hub that drains or has left the plane does not count.',
    () => gateway()?.links().up ?? 0,
  );
}

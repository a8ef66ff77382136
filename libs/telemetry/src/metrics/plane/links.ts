import type { SessionInfo } from '@isthmus/tunnel';
import type { Subscriptions } from '../../subscribe.ts';
import type { Families } from '../exposition/families.ts';

const PROTOCOLS: readonly SessionInfo['protocol'][] = ['link', 'packets'];

/** A hub's sessions with agents. */
export function sessionMetrics(families: Families): Subscriptions {
  const sessions = families.gauges(
    'sessions',
    'Current number of sessions of agents at this hub, by protocol: link (HTTP/2) or packets (AgentService.Connect).',
    ['protocol'],
  );
  const opens = families.counters(
    'session_opens_total',
    'Sessions that agents opened at this hub, by protocol. All but the first of each agent are reconnects.',
    ['protocol'],
  );
  for (const protocol of PROTOCOLS) {
    sessions.of({ protocol });
    opens.of({ protocol });
  }
  return {
    'session:open'({ protocol }) {
      sessions.of({ protocol }).inc();
      opens.of({ protocol }).inc();
    },
    'session:close': ({ protocol }) => sessions.of({ protocol }).dec(),
  };
}

/** A gateway's links to hubs. */
export function hubLinkMetrics(families: Families): Subscriptions {
  const opens = families.counter(
    'hub_link_opens_total',
    'Links to hubs that this gateway opened. All but the first to each hub are reconnects.',
  );
  const failures = families.counter('hub_link_failures_total', 'Links to hubs that this gateway could not open.');
  return {
    'peer:open': () => opens.inc(),
    'peer:failure': () => failures.inc(),
  };
}

import type { Role, SessionInfo, TunnelInfo } from '@isthmus/tunnel';
import type { Subscriptions } from '../subscribe.ts';
import type { Families } from './families.ts';

const PROTOCOLS: readonly SessionInfo['protocol'][] = ['link', 'packets'];

/** What upstream has no families for, in gateways, hubs and agents alike. */
export function tunnelMetrics(families: Families, role: Role): Subscriptions {
  const open = new Set<TunnelInfo>();
  let up = 0;
  let down = 0;
  families.tallied(
    'counter',
    'tunnel_bytes_total',
    'Bytes carried by tunnels, up from caller to destination and down from destination to caller. Open tunnels count.',
    ['direction'],
    () => {
      let openUp = 0;
      let openDown = 0;
      for (const tunnel of open) {
        openUp += tunnel.up;
        openDown += tunnel.down;
      }
      return [
        [{ direction: 'up' }, up + openUp],
        [{ direction: 'down' }, down + openDown],
      ];
    },
  );
  const errors = families.counter(
    'dial_errors_total',
    'Dials that did not become a tunnel, by the error name of RFC 9209.',
    ['error'],
  );
  const refused = families.counter(
    'refused_total',
    'Connections and requests that were refused because they could not be understood or were not allowed, by where.',
    ['where'],
  );
  const orphaned = families.counter(
    'orphaned_tunnels_total',
    'Tunnels of which only one side of a link knew, ended when the two compared. Should stay 0.',
    ['role'],
  );
  orphaned.inc({ role }, 0);
  return {
    'dial:end'(by, _dial, { error }) {
      if (by === role && error) errors.inc({ error: error.code });
    },
    'tunnel:open'(tunnel) {
      if (tunnel.role === role) open.add(tunnel);
    },
    'tunnel:close'(tunnel) {
      if (!open.delete(tunnel)) return;
      up += tunnel.up;
      down += tunnel.down;
    },
    'tunnel:orphaned'(by) {
      orphaned.inc({ role: by });
    },
    refused(where) {
      refused.inc({ where });
    },
  };
}

/** What upstream has no families for, in gateways and hubs. */
export function planeMetrics(families: Families): Subscriptions {
  const hubs = families.gauge('hub_links', 'Current number of links of this gateway to hubs.');
  const registry = families.gauge(
    'registry_up',
    'Whether the registry answers: 1, or 0 while dials rely on what is known.',
  );
  registry.set(1);
  const sessions = families.gauge(
    'sessions',
    'Current number of sessions of agents at this hub, by protocol: link (HTTP/2) or packets (AgentService.Connect).',
    ['protocol'],
  );
  for (const protocol of PROTOCOLS) sessions.set({ protocol }, 0);
  return {
    'peer:open': () => hubs.inc(),
    'peer:close': () => hubs.dec(),
    'session:open': ({ protocol }) => sessions.inc({ protocol }),
    'session:close': ({ protocol }) => sessions.dec({ protocol }),
    registry: (state) => registry.set(state === 'up' ? 1 : 0),
  };
}

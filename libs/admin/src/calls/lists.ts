import type { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';
import { byAge, sessionMessage, tunnelMessage, tunnelsBySession } from './messages.ts';

type ListsRpc = Pick<adminApi.AdminServiceImplementation, 'listSessions' | 'listTunnels'>;

export function listsRpc(backend: AdminBackend): ListsRpc {
  return {
    async listSessions({ tenant }) {
      const through = tunnelsBySession(backend.tunnels());
      const leaving = new Set([...(backend.plane?.hubs() ?? [])].filter((hub) => hub.draining).map((hub) => hub.hubId));
      const sessions = [...backend.sessions()]
        .filter((session) => tenant === '' || session.tenant === tenant)
        .sort(byAge)
        .map((session) => {
          const { sessionId, hubId } = session;
          return {
            ...sessionMessage(session, backend.quarantine?.reasonFor(session), through.get(sessionId) ?? 0),
            draining: (session.draining ?? false) || leaving.has(hubId),
          };
        });
      return { sessions };
    },
    async listTunnels({ tenant, sessionId }) {
      const now = Date.now();
      const tunnels = [...backend.tunnels()]
        .filter((tunnel) => tenant === '' || tunnel.dial.tenant === tenant)
        .filter((tunnel) => sessionId === '' || tunnel.sessionId === sessionId)
        .sort(byAge)
        .map((tunnel) => tunnelMessage(tunnel, now));
      return { tunnels };
    },
  };
}

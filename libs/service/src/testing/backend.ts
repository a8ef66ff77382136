import { planeEvents } from '@isthmus/tunnel';
import { RecentDials } from '../admin/recent-dials.ts';
import type { AdminBackend } from '../admin-backend.ts';

/** An admin backend of a program that has and does nothing, but for what a test gives. */
export function idleBackend(given: Partial<AdminBackend> = {}): AdminBackend {
  return {
    identity: {
      ...{ program: 'proxy-server', roles: ['gateway', 'hub'] as const },
      ...{ memberId: 'm1', hubId: 'm1', agentId: '', zone: 'a', plane: 'isthmus' },
    },
    checks: () => [],
    sessions: () => [],
    sessionCount: () => 0,
    tunnels: () => [],
    dials: new RecentDials(planeEvents()),
    flags: [],
    log: { level: 'info', levelOf: () => 'debug', recent: Object.assign([], { forgotten: 0 }) },
    kick: { tunnel: () => 0 },
    drain: async () => ({ sessions: 0, tunnels: 0 }),
    plan: () => ({ sessions: 0, moves: [] }),
    ...given,
  };
}

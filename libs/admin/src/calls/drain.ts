import type { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';
import { byAge, tunnelMessage, tunnelsBySession } from './messages.ts';

/** Sessions or tunnels listed in the answer to a dry run. That is enough for an operator, and far below the message limit. */
const MAX_LISTED = 1000;

export function drainRpc(backend: AdminBackend): Pick<adminApi.AdminServiceImplementation, 'drain'> {
  return {
    async drain({ dryRun }) {
      if (dryRun) return dryRunOf(backend);
      const left = await backend.drain();
      backend.log.info({ ...left }, 'operator asked for a drain');
      return { ...left, plan: undefined };
    },
  };
}

function dryRunOf(backend: AdminBackend): adminApi.DeepPartial<adminApi.DrainResponse> {
  const { sessions, moves, gracefulMs } = backend.plan();
  const now = Date.now();
  const tunnels = [...backend.tunnels()].sort(byAge);
  const through = tunnelsBySession(tunnels);
  const all = [...moves].sort((a, b) => a.elsewhere - b.elsewhere);
  return {
    sessions,
    tunnels: tunnels.length,
    plan: {
      moves: all.slice(0, MAX_LISTED).map((move) => ({ ...move, tunnels: through.get(move.sessionId) ?? 0 })),
      stranded: all.filter(({ elsewhere }) => elsewhere === 0).length,
      running: tunnels.slice(0, MAX_LISTED).map((tunnel) => tunnelMessage(tunnel, now)),
      ...(gracefulMs !== undefined && { gracefulMs: BigInt(gracefulMs) }),
    },
  };
}

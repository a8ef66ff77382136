import type { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';
import type { Slot } from './dial-history.ts';
import { refusalMessage } from './messages.ts';
import { absent } from './refusals.ts';

const HOUR_MS = 3_600_000;

type HistoryRpc = Pick<adminApi.AdminServiceImplementation, 'getHistory'>;

export function historyRpc({ history, refusals }: AdminBackend): HistoryRpc {
  return {
    async getHistory({ tenant }) {
      if (!history) throw absent('this program keeps no history: ask a gateway or hub');
      const { slotMs, slots } = history.of(tenant === '' ? undefined : tenant);
      return { slotMs, slots: slots.map(slotMessage), refusals: refusals.list(HOUR_MS).map(refusalMessage) };
    },
  };
}

function slotMessage({ start, dials, failures, p50, p99, sessions, tunnels }: Slot): adminApi.HistorySlot {
  return {
    startMs: BigInt(start),
    dials: BigInt(dials),
    failures: BigInt(failures),
    p50Ms: p50,
    p99Ms: p99,
    sessions,
    tunnels,
  };
}

import type { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';
import { configRpc } from '../calls/config.ts';
import { dialRpc } from '../calls/dial.ts';
import { drainRpc } from '../calls/drain.ts';
import { explainRpc } from '../calls/explain.ts';
import { kickRpc } from '../calls/kick.ts';
import { listsRpc } from '../calls/lists.ts';
import { logsRpc } from '../calls/logs.ts';
import { membersRpc } from '../calls/members.ts';
import { probesRpc } from '../calls/probes.ts';
import { quarantineRpc } from '../calls/quarantine.ts';
import { statusRpc } from '../calls/status.ts';
import { watchRpc } from '../calls/watch-dials.ts';

/** Returns the admin RPC: the backend's data and actions, in the messages of the API. Each group of calls has its own file. */
export function adminService(backend: AdminBackend): adminApi.AdminServiceImplementation {
  return {
    ...statusRpc(backend),
    ...listsRpc(backend),
    ...watchRpc(backend),
    ...membersRpc(backend),
    ...configRpc(backend),
    ...explainRpc(backend),
    ...dialRpc(backend),
    ...kickRpc(backend),
    ...quarantineRpc(backend),
    ...probesRpc(backend),
    ...logsRpc(backend),
    ...drainRpc(backend),
  };
}

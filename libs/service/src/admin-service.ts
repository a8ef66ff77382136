import type { adminApi } from '@isthmus/proto/admin';
import { configRpc } from './admin/config.ts';
import { dialRpc } from './admin/dial.ts';
import { drainRpc } from './admin/drain.ts';
import { explainRpc } from './admin/explain.ts';
import { kickRpc } from './admin/kick.ts';
import { listsRpc } from './admin/lists.ts';
import { logsRpc } from './admin/logs.ts';
import { membersRpc } from './admin/members.ts';
import { probesRpc } from './admin/probes.ts';
import { quarantineRpc } from './admin/quarantine.ts';
import { statusRpc } from './admin/status.ts';
import { watchRpc } from './admin/watch-dials.ts';
import type { AdminBackend } from './admin-backend.ts';

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

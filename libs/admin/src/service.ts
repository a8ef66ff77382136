import type { adminApi } from '@isthmus/proto/admin';
import type { CallContext } from 'nice-grpc';
import { type AnyMethod, guarded, type Method } from './access/guard.ts';
import { scopedTo } from './access/scope.ts';
import type { Visitor } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { dialRpc } from './calls/dial.ts';
import { explainRpc } from './calls/explain.ts';
import { drainRpc, historyRpc, kickRpc, listsRpc } from './calls/lists.ts';
import { logsRpc } from './calls/logs.ts';
import { membersRpc } from './calls/members.ts';
import { quarantineRpc } from './calls/quarantine.ts';
import { configRpc, probesRpc, statusRpc } from './calls/status.ts';
import { tenantsRpc } from './calls/tenants.ts';
import { watchRpc } from './calls/watch-dials.ts';

/** Answers a call of the admin RPC. */
export type Answering = (method: Method, request: object, signal: AbortSignal) => AsyncIterable<object>;

/** Returns the admin RPC as a visitor may use it. */
export function answering(visitor: Visitor, backend: AdminBackend): Answering {
  const { principal } = visitor;
  const service = adminService(principal ? scopedTo(principal.tenant, backend) : backend, visitor);
  const { tenants, operated = () => {} } = backend;
  return (name, request, signal) => {
    const method = service[name] as (request: object, context: CallContext) => ReturnType<AnyMethod>;
    // No method reads more of its context than the signal, which is aborted when the client is gone or cancels.
    const respond = (asked: object) => method(asked, { signal } as CallContext);
    return guarded(name, respond, request, { visitor, tenants, operated });
  };
}

/** Returns the admin RPC: the backend's data and actions, in the messages of the API. Each group of calls has its own file. */
function adminService(backend: AdminBackend, { principal }: Visitor): adminApi.AdminServiceImplementation {
  return {
    ...statusRpc(backend),
    ...listsRpc(backend),
    ...watchRpc(backend),
    ...membersRpc(backend),
    ...tenantsRpc(backend),
    ...historyRpc(backend),
    ...configRpc(backend),
    ...explainRpc(backend),
    ...dialRpc(backend, principal),
    ...kickRpc(backend),
    ...quarantineRpc(backend),
    ...probesRpc(backend),
    ...logsRpc(backend),
    ...drainRpc(backend),
  };
}

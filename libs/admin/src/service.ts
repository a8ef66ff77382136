import { type AnyMethod, guarded, type Method } from './access/guard.ts';
import { scopedTo } from './access/scope.ts';
import type { Visitor } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { dial } from './calls/dial.ts';
import { explain } from './calls/explain.ts';
import { drain, getHistory, kick, listEvents, listSessions, listTunnels } from './calls/lists.ts';
import { getMetrics, recentLogs, setLogLevel } from './calls/logs.ts';
import { listMembers } from './calls/members.ts';
import type { Call } from './calls/messages.ts';
import { listQuarantined, quarantine } from './calls/quarantine.ts';
import { expectProbe, getConfig, getStatus } from './calls/status.ts';
import { listTenants } from './calls/tenants.ts';
import { watchDials } from './calls/watch-dials.ts';

/** The admin RPC: what a process knows and does, in the messages of the API. Each group of calls has its own file. */
const CALLS: { readonly [M in Method]: Call<M> } = {
  ...{ getStatus, getConfig, expectProbe, listMembers, listTenants, listSessions, listTunnels, watchDials },
  ...{ getHistory, listEvents, explain, dial, kick, drain, quarantine, listQuarantined },
  ...{ setLogLevel, recentLogs, getMetrics },
};

/** A method of the service, for code that treats all alike. */
type AnyCall = (backend: AdminBackend, request: object, asker: object) => ReturnType<AnyMethod>;

/** Answers a call of the admin RPC. */
export type Answering = (method: Method, request: object, signal: AbortSignal) => AsyncIterable<object>;

/** Returns the admin RPC as a visitor may use it. */
export function answering(visitor: Visitor, backend: AdminBackend): Answering {
  const { principal } = visitor;
  const { tenants, operated = () => {} } = backend;
  const own = principal ? scopedTo(principal.tenant, backend) : backend;
  return (name, request, signal) => {
    const call = CALLS[name] as AnyCall;
    return guarded(name, (asked) => call(own, asked, { signal, principal }), request, { visitor, tenants, operated });
  };
}

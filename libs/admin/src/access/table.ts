import type { adminApi } from '@isthmus/proto/admin';
import { NotAuthorised } from '@isthmus/tunnel';
import type { CallContext } from 'nice-grpc';

type Service = adminApi.AdminServiceImplementation;
export type Method = keyof Service;
type Request<M extends Method> = Parameters<Service[M]>[0];

/** What an operation acts on, for its audit record. */
export interface Target {
  readonly tenant?: string | undefined;
  readonly target?: string | undefined;
  /** The reason that the operator gave. */
  readonly text?: string | undefined;
}

/** Who may call a method. */
interface Rule<M extends Method> {
  /**
   * What an operator of one tenant may ask: returns the request as one of that tenant, or throws NotAuthorised. Unset: the method is
   * for operators of the plane.
   */
  readonly ofTenant?: (request: Request<M>, tenant: string) => Request<M>;
  /** Set for what changes something or opens a connection: it gets an audit record for every operator. */
  readonly acts?: (request: Request<M>) => Target;
}

/** Every method of the service. The compiler asks for a new one, and a method without a rule is refused. */
export const ACCESS: { readonly [M in Method]: Rule<M> } = {
  // The scope (scope.ts) leaves out what is not the tenant's in their answers.
  getStatus: { ofTenant: (request) => request },
  listMembers: { ofTenant: (request) => request },
  listSessions: { ofTenant: within },
  listTunnels: { ofTenant: within },
  watchDials: { ofTenant: within },
  listTenants: { ofTenant: within },
  listQuarantined: { ofTenant: within },
  getHistory: { ofTenant: within },
  explain: { ofTenant: within },
  dial: {
    ofTenant: within,
    acts: ({ tenant, destination, agentId }) => ({
      tenant,
      target: destination + (agentId && ` through agent ${agentId}`),
    }),
  },
  kick: {
    ofTenant(request, tenant) {
      if (request.target?.$case !== 'agent') return request;
      return { ...request, target: { $case: 'agent', value: within(request.target.value, tenant) } };
    },
    acts: ({ target, reason }) => ({ ...kicked(target), text: reason }),
  },
  quarantine: {
    ofTenant(request, tenant) {
      return { ...request, agent: within({ tenant: '', agentId: '', ...request.agent }, tenant) };
    },
    acts: ({ agent, lift, reason }) => ({
      tenant: agent?.tenant,
      target: `agent ${agent?.agentId ?? ''}${lift ? ', lifted' : ''}`,
      text: reason,
    }),
  },
  // What concerns the whole process, or tells of it.
  getConfig: {},
  recentLogs: {},
  expectProbe: {},
  setLogLevel: { acts: ({ level }) => ({ target: level === '' ? 'read' : level }) },
  drain: { acts: ({ dryRun }) => ({ target: dryRun ? 'dry run' : 'this process' }) },
};

/** A request about a tenant, which has to be this one. */
function within<R extends { readonly tenant: string }>(request: R, tenant: string): R {
  if (request.tenant !== '' && request.tenant !== tenant) {
    throw new NotAuthorised(`tenant ${request.tenant} is not yours: an operator of it, or of the plane, may ask this`);
  }
  return { ...request, tenant };
}

function kicked(target: adminApi.KickRequest['target']): Target {
  if (target?.$case === 'agent') return { tenant: target.value.tenant, target: `agent ${target.value.agentId}` };
  if (target?.$case === 'sessionId') return { target: `session ${target.value}` };
  return { target: `tunnel of dial ${target?.value ?? ''}` };
}

/** Any method of the service, for code that treats them alike. */
export type AnyMethod = (request: object, context: CallContext) => Promise<unknown> | AsyncIterable<unknown>;
export type AnyRule = {
  readonly ofTenant?: (request: object, tenant: string) => object;
  readonly acts?: (request: object) => Target;
};

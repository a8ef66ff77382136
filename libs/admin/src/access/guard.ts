import type { adminApi } from '@isthmus/proto/admin';
import { NotAuthorised, type Operation } from '@isthmus/tunnel';
import { denied } from '../calls/messages.ts';
import { faultOfVisitor, type Visitor } from './visitor.ts';

type Service = adminApi.AdminServiceImplementation;
export type Method = keyof Service;
type Request<M extends Method> = Parameters<Service[M]>[0];

/** What an operation acts on, for its audit record. */
interface Target {
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
  // Of their answers, scope.ts leaves out what is not the tenant's.
  getStatus: { ofTenant: (request) => request },
  listMembers: { ofTenant: (request) => request },
  listSessions: { ofTenant: within },
  listTunnels: { ofTenant: within },
  watchDials: { ofTenant: within },
  listTenants: { ofTenant: within },
  listQuarantined: { ofTenant: within },
  getHistory: { ofTenant: within },
  listEvents: { ofTenant: (request) => request },
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
  getMetrics: {},
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

/** A method of the service, for code that treats all alike. */
export type AnyMethod = (request: object) => Promise<object> | AsyncIterable<object>;
type AnyRule = {
  readonly ofTenant?: (request: object, tenant: string) => object;
  readonly acts?: (request: object) => Target;
};

interface GuardOptions {
  readonly visitor: Visitor;
  /** Those of the plane: an operator of one that is gone may do nothing more. */
  readonly tenants: Parameters<typeof faultOfVisitor>[1];
  /** Called for what an operator did, and for what it was refused. */
  readonly operated: (operation: Operation) => void;
}

/** Yields what a method answers to a visitor. Every call passes here. A method without a rule in ACCESS is refused to all. */
export async function* guarded(
  name: string,
  method: AnyMethod,
  request: object,
  options: GuardOptions,
): AsyncIterable<object> {
  const { visitor, operated } = options;
  const rule = (ACCESS as Record<string, AnyRule | undefined>)[name];
  // As the service's definition has it, and --help of grpcurl.
  const call = name.charAt(0).toUpperCase() + name.slice(1);
  const report = (outcome: Operation['outcome'], target: Target, text = target.text) => {
    operated({ operator: visitor.operator, call, outcome, ...given({ ...target, text }) });
  };
  let asked: object;
  try {
    asked = allowed(call, request, rule, options);
  } catch (error) {
    if (!(error instanceof NotAuthorised)) throw error;
    report('refused', rule?.acts?.(request) ?? {}, error.message);
    throw denied(error.message);
  }
  const answers = method(asked);
  const target = rule?.acts?.(asked);
  if (!(answers instanceof Promise)) yield* answers;
  else {
    const answer = await answers.catch((error: Error) => {
      if (target) report('failed', target, error.message);
      throw error;
    });
    if (target) report('done', target);
    yield answer;
  }
}

/** Returns the request as the visitor may make it. @throws NotAuthorised */
function allowed(call: string, request: object, rule: AnyRule | undefined, { visitor, tenants }: GuardOptions): object {
  const fault = faultOfVisitor(visitor, tenants);
  if (fault) throw fault;
  const { principal } = visitor;
  if (!rule) throw new NotAuthorised(`${call} has no rule that says who may call it: this is a bug, please report it`);
  if (!principal) return request;
  const { tenant } = principal;
  if (rule.ofTenant) return rule.ofTenant(request, tenant);
  throw new NotAuthorised(
    `${call} is for operators of the plane: this certificate is of an operator of tenant ${tenant}`,
  );
}

/** The fields that have a value. */
function given({ tenant, target, text }: Target): Pick<Operation, 'tenant' | 'target' | 'text'> {
  return { ...(tenant && { tenant }), ...(target && { target }), ...(text && { text }) };
}

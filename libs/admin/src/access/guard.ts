import type { adminApi } from '@isthmus/proto/admin';
import { NotAuthorised, type Operation } from '@isthmus/tunnel';
import { type CallContext, ServerError, Status } from 'nice-grpc';
import { ACCESS, type AnyMethod, type AnyRule, type Target } from './table.ts';
import { faultOfVisitor, type Visitor } from './visitor.ts';

export interface GuardOptions {
  readonly visitor: Visitor;
  /** Those of the plane: an operator of one that is gone may do nothing more. */
  readonly tenants: Parameters<typeof faultOfVisitor>[1];
  /** Called for what an operator did, and for what it was refused. */
  readonly operated: (operation: Operation) => void;
}

/** The service as one visitor may use it: every call passes here. A method without a rule in ACCESS is refused to all. */
export function guarded(
  service: adminApi.AdminServiceImplementation,
  options: GuardOptions,
): adminApi.AdminServiceImplementation {
  const rules: Readonly<Record<string, AnyRule | undefined>> = ACCESS as Record<string, AnyRule>;
  const methods = Object.entries(service as unknown as Record<string, AnyMethod>).map(
    ([name, method]) => [name, guardedMethod(name, method, rules[name], options)] as const,
  );
  return Object.fromEntries(methods) as unknown as adminApi.AdminServiceImplementation;
}

function guardedMethod(name: string, method: AnyMethod, rule: AnyRule | undefined, options: GuardOptions): AnyMethod {
  const { visitor, operated } = options;
  // As the service's definition has it, and --help of grpcurl.
  const call = name.charAt(0).toUpperCase() + name.slice(1);
  const report = (outcome: Operation['outcome'], target: Target, text = target.text) => {
    operated({ operator: visitor.operator, call, outcome, ...given({ ...target, text }) });
  };
  return (request: object, context: CallContext) => {
    let asked: object;
    try {
      asked = allowed(call, request, rule, options);
    } catch (error) {
      if (!(error instanceof NotAuthorised)) throw error;
      report('refused', rule?.acts?.(request) ?? {}, error.message);
      throw new ServerError(Status.PERMISSION_DENIED, error.message);
    }
    const answers = method(asked, context);
    const target = rule?.acts?.(asked);
    if (!target || !(answers instanceof Promise)) return answers;
    return answers.then(
      (answer: unknown) => {
        report('done', target);
        return answer;
      },
      (error: Error) => {
        report('failed', target, error.message);
        throw error;
      },
    );
  };
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

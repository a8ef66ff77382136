/** Who a peer is, from its verified credential. What it says of itself is a claim, and is no part of this. */
export interface Principal<Role extends string = 'agent' | 'caller'> {
  readonly tenant: string;
  readonly role: Role;
  /** Within the tenant: an agent's id, the name of a caller or operator. */
  readonly name: string;
  /** What verified it, for people to find: `acme.yaml: agents[0].certificates`. */
  readonly rule: string;
  /** Several agents hold the credential, such as a service account's token: it says nothing of an agent's id. */
  readonly shared?: boolean;
}

/** A principal at any port, the admin port included. */
export type AnyPrincipal = Principal<'agent' | 'caller' | 'operator'>;

/** Names a principal in logs and audit records: `acme/agent/edge-1`. */
export function principalText({ tenant, role, name }: Pick<AnyPrincipal, 'tenant' | 'role' | 'name'>): string {
  return `${tenant}/${role}/${name}`;
}

interface RefusedWhat {
  readonly rule?: string | undefined;
  readonly principal?: AnyPrincipal | undefined;
  readonly destination?: string | undefined;
  readonly tenant?: string | undefined;
  readonly undecided?: boolean;
  readonly cause?: Error;
}

/** A peer that did not prove who it is, or that claims or asks for more than its principal may. */
export class NotAuthorised extends Error {
  override readonly name = 'NotAuthorised';
  /** The file and rule that refuse it: `acme.yaml: claims.cidr`. Unset if no tenant's file applies to it. */
  readonly rule: string | undefined;
  /** Who it is. Unset if it has proven nothing. */
  readonly principal: AnyPrincipal | undefined;
  /** `host:port` that it wanted to dial. Unset if it was refused before it dialled. */
  readonly destination: string | undefined;
  /** Of its principal; of a dial over a link, which tells no principal, the dial's. */
  readonly tenant: string | undefined;
  /** Whether nobody could decide now, because what decides did not answer. The same credential may be good the next time. */
  readonly undecided: boolean;

  constructor(
    message: string,
    { rule, principal, destination, tenant = principal?.tenant, undecided = false, cause }: RefusedWhat = {},
  ) {
    super(message, cause && { cause });
    this.rule = rule;
    this.principal = principal;
    this.destination = destination;
    this.tenant = tenant;
    this.undecided = undecided;
  }

  /** The same refusal, of a dial. */
  dialling(destination: string): NotAuthorised {
    const { rule, principal } = this;
    return new NotAuthorised(this.message, { rule, principal, destination });
  }
}

/** The longest chain of causes that is followed: an error, what wrapped it, and what that came over. */
const MOST_CAUSES = 4;

/** Returns the NotAuthorised that an error is, or that caused it. */
export function notAuthorisedIn(error: unknown): NotAuthorised | undefined {
  let each = error;
  for (let step = 0; step < MOST_CAUSES && each instanceof Error; step++) {
    if (each instanceof NotAuthorised) return each;
    each = each.cause;
  }
  return undefined;
}

import type { Socket } from 'node:net';
import type { AgentEvidence, Grant, Tenant } from '@isthmus/admission';
import type { Tenancy } from '@isthmus/plane';
import { addressOf, getOrPut, LruMap, memory, onceClosed, sourceOf, type WaitingConnections } from '@isthmus/runtime';
import {
  type AgentHello,
  AgentLimitError,
  type Authenticate,
  type agentService,
  DEFAULT_TENANT,
  type IdentifierLimits,
  LinkRefused,
  type NextHopConnection,
  parseIdentifiers,
  type Reach,
  refusedWhere,
  serverNameOf,
  shownCertificate,
} from '@isthmus/transport';
import {
  type AgentIdentifiers,
  identifierCount,
  NotAuthorised,
  PerSecond,
  type PlaneEvents,
  type Principal,
  principalText,
  TokenBucket,
} from '@isthmus/tunnel';
import { HUB } from './defaults.ts';
import type { SessionTable } from './sessions.ts';

/** An agent that asks for a session, with what it claims and what it shows. */
interface Asking {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly socket: Socket;
  /** Without `Bearer`. */
  readonly token: string | undefined;
  /** The tenant that it says it is of. */
  readonly claimedTenant?: string | undefined;
  /** Aborts when it has gone. */
  readonly signal: AbortSignal;
}

interface Applicant extends Asking {
  /** The tenant whose own port it came to. */
  readonly portOf: string | undefined;
  /** Call once its credential is known to be good. */
  readonly proved: () => void;
}

/** The port that an agent came to. */
interface AcceptingPort {
  /** The tenant whose own it is. */
  readonly tenant?: string;
  readonly unproven: Pick<WaitingConnections, 'proved'>;
}

/**
 * Finds out who an agent is, by its credential, and checks what it claims to be. Rejects with NotAuthorised, whose text and rule name
 * the tenant's file, and AgentLimitError.
 */
async function admitted(tenancy: Tenancy, applicant: Applicant, sessions: SessionTable): Promise<Grant> {
  const grant = await verified(tenancy, applicant);
  const { agentId, identifiers } = applicant;
  const count = identifierCount(identifiers);
  if (count > grant.tenant.limits.identifiers)
    throw beyond(grant.tenant, 'identifiers', (most) => `agent ${agentId} has ${count} identifiers, more than ${most}`);
  checkTenantRoom(grant.tenant, agentId, sessions);
  return grant;
}

/** Verifies a fresh token of an agent that has a session. Limits hold for new sessions only. Rejects with NotAuthorised, also for a token of
 * another principal. */
async function renewed(tenancy: Tenancy, applicant: Applicant, before: Principal): Promise<Grant> {
  const grant = await verified(tenancy, applicant);
  const { principal } = grant;
  if (principalText(principal) === principalText(before)) return grant;
  const text = `the fresh token of agent ${applicant.agentId} is of ${principalText(principal)}, and its session of ${principalText(before)}`;
  throw new NotAuthorised(text, { rule: principal.rule, principal: before });
}

async function verified({ identify, admit }: Tenancy, applicant: Applicant): Promise<Grant> {
  const grant = await identify.agent(evidenceOf(applicant));
  applicant.proved();
  admit(grant, applicant);
  return grant;
}

/** @throws AgentLimitError while this process has hardly any memory left. Its agents' dials would be refused, and another hub may have more */
function checkMemory(): void {
  if (memory.scarce) throw new AgentLimitError('memory', 'the hub has too little memory for another agent');
}

/** @throws AgentLimitError if the tenant's limits leave no room for another session of the agent */
function checkTenantRoom(tenant: Tenant, agentId: string, sessions: SessionTable): void {
  const { name, limits } = tenant;
  const own = sessions.ofAgent({ tenant: name, agentId });
  const all = sessions.tenants.get(name) ?? 0;
  if (own >= limits.sessionsPerAgent)
    throw beyond(tenant, 'sessionsPerAgent', (most) => `agent ${agentId} has ${most} sessions here already`);
  if (own === 0 && sessions.agentsOf(name) >= limits.agents)
    throw beyond(tenant, 'agents', (most) => `tenant ${name} has ${most} agents here already`);
  if (all >= limits.sessions)
    throw beyond(tenant, 'sessions', (most) => `tenant ${name} has ${most} sessions here already`);
}

type Limit = 'agents' | 'sessionsPerAgent' | 'sessions' | 'identifiers';

function beyond({ path, limits }: Tenant, limit: Limit, text: (most: number) => string): AgentLimitError {
  return new AgentLimitError(`limits.${limit}`, `${text(limits[limit])} (${path}: limits.${limit})`);
}

function evidenceOf({ socket, token, claimedTenant, portOf, signal }: Applicant): AgentEvidence {
  const certificate = shownCertificate(socket);
  const serverName = serverNameOf(socket);
  return {
    source: sourceOf(addressOf(socket) ?? ''),
    signal,
    ...(portOf !== undefined && { tenant: portOf }),
    ...(serverName !== undefined && { serverName }),
    ...(certificate && { certificate }),
    ...(token !== undefined && { token }),
    ...(claimedTenant !== undefined && { claimedTenant }),
  };
}

/** How often agents of each tenant may renew their sessions at a hub. All tenants share the processor that verifies their tokens. */
export class RenewalRates {
  readonly #now: () => number;
  readonly #tenants = new LruMap<string, { readonly bucket: TokenBucket; readonly perSecond: PerSecond }>(
    HUB.renewingTenants,
  );

  /** @param now milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Fresh tokens of a tenant that were taken in the last full second. */
  last(tenant: string): number {
    return this.#tenants.get(tenant)?.perSecond.last ?? 0;
  }

  /** Counts a fresh token. @throws NotAuthorised, with an AgentLimitError as its cause, if the tenant's limit leaves no room for it */
  take({ tenant, principal }: Pick<Grant, 'tenant' | 'principal'>): void {
    const { name, path, limits } = tenant;
    const { renewalsPerSecond: most } = limits;
    const fresh = () => ({ bucket: new TokenBucket(this.#now), perSecond: new PerSecond(this.#now) });
    const { bucket, perSecond } = getOrPut(this.#tenants, name, fresh);
    if (bucket.take(1, { perSecond: most, atOnce: most })) {
      perSecond.add(1);
      return;
    }
    const rule = `${path}: limits.renewalsPerSecond`;
    const text = `tenant ${name} has reached its limit renewalsPerSecond of ${most}: send the token again later (${rule})`;
    const cause = new AgentLimitError('limits.renewalsPerSecond', text);
    throw new NotAuthorised(text, { rule, principal, cause });
  }
}

export interface AgentAdmissionOptions {
  /** For service account tokens; unset where certificates alone decide. */
  readonly authenticate?: Authenticate;
  /** Unset: there is one tenant, and agents name it. */
  readonly tenancy?: Tenancy;
  readonly limits: IdentifierLimits & {
    /** Sessions of one agent at this hub. */
    readonly sessions: number;
  };
}

/** An agent that may have a session. */
export interface AdmittedAgent {
  readonly tenant: string;
  /** Unset where no tenants are configured. */
  readonly grant?: Grant;
  /** Verifies a fresh token of the same agent. Set if the grant stands on a token. Rejects with NotAuthorised. */
  readonly renew?: (token: string) => Promise<Grant>;
}

/** Decides which agents may have sessions: by the program's flags, or by the tenants' files where they are. */
export class AgentAdmission {
  readonly renewals = new RenewalRates();
  readonly #options: AgentAdmissionOptions;
  readonly #sessions: SessionTable;
  readonly #portOf: (socket: Socket) => AcceptingPort | undefined;
  /** Attempts of a connection that were not admitted, or not yet. */
  readonly #attempts = new WeakMap<Socket, number>();

  constructor(
    options: AgentAdmissionOptions,
    sessions: SessionTable,
    portOf: (socket: Socket) => AcceptingPort | undefined,
  ) {
    this.#options = options;
    this.#sessions = sessions;
    this.#portOf = portOf;
  }

  /** What decides on Go agents, which bring no tenant: their credential names it. */
  get packets(): Pick<Parameters<typeof agentService<AdmittedAgent>>[0], 'admit' | 'checkRoom' | 'identifierLimits'> {
    return {
      identifierLimits: this.#identifierLimits,
      admit: ({ peer, authenticate, ...agent }) => this.#admit({ ...agent, ...peer }, authenticate),
      checkRoom: (agent, agentId) => this.checkRoom(agent, agentId),
    };
  }

  async link(hello: AgentHello, socket: Socket): Promise<AdmittedAgent & Reach> {
    const { tenant: claimedTenant, agentId, token } = hello;
    const reach = this.#reachOf(hello.identifiers);
    const agent = { agentId, ...reach, token, socket, signal: goneSignal(socket), claimedTenant };
    return { ...reach, ...(await this.#admit(agent, (check) => authenticate(agent, check))) };
  }

  /** Decides on an agent's own link, which is no session: who it is, and nothing of what it can reach. */
  async apiServerLink({ tenant: claimedTenant, agentId, token }: AgentHello, socket: Socket): Promise<AdmittedAgent> {
    checkMemory();
    const { tenancy, authenticate: check } = this.#options;
    const identifiers = parseIdentifiers('', this.#identifierLimits).identifiers;
    const agent = { agentId, identifiers, token, socket, signal: goneSignal(socket), claimedTenant };
    if (tenancy) return this.#admitPrincipal(tenancy, agent, (applicant) => verified(tenancy, applicant));
    if (check) {
      await authenticate(agent, check);
      this.#proved(socket);
    }
    return { tenant: claimedTenant ?? DEFAULT_TENANT };
  }

  /** How many sessions an agent may have here, and its tenant. */
  mostSessions({ grant }: AdmittedAgent): { readonly ofAgent: number; readonly ofTenant: number } {
    if (!grant) return { ofAgent: this.#options.limits.sessions, ofTenant: Number.POSITIVE_INFINITY };
    const { sessionsPerAgent: ofAgent, sessions: ofTenant } = grant.tenant.limits;
    return { ofAgent, ofTenant };
  }

  /**
   * Checks the cheap conditions first: a token review asks the API server.
   * @param authenticate lets the agent's token be checked
   */
  async #admit(agent: Asking, authenticate: (check: Authenticate) => Promise<void>): Promise<AdmittedAgent> {
    checkMemory();
    const { tenancy, authenticate: check } = this.#options;
    if (tenancy)
      return this.#admitPrincipal(tenancy, agent, (applicant) => admitted(tenancy, applicant, this.#sessions));
    const { agentId, claimedTenant: tenant = DEFAULT_TENANT } = agent;
    this.checkRoom({ tenant }, agentId);
    if (check) {
      await authenticate(check);
      this.#proved(agent.socket);
    }
    this.checkRoom({ tenant }, agentId);
    return { tenant };
  }

  /** Call again before the session opens, because other agents may have come meanwhile. @throws AgentLimitError */
  checkRoom({ tenant, grant }: AdmittedAgent, agentId: string): void {
    if (grant) {
      checkTenantRoom(grant.tenant, agentId, this.#sessions);
      return;
    }
    const { sessions } = this.#options.limits;
    if (this.#sessions.ofAgent({ tenant, agentId }) < sessions) return;
    const text = `agent ${agentId} has ${sessions} sessions here already: --max-agent-sessions`;
    throw new AgentLimitError('agent sessions', text);
  }

  /** With tenants, their files say how many identifiers an agent may have. */
  get #identifierLimits(): IdentifierLimits {
    const { limits, tenancy } = this.#options;
    return tenancy ? { ...limits, identifiers: limits.identifierBytes } : limits;
  }

  async #admitPrincipal(
    tenancy: Tenancy,
    agent: Asking,
    judge: (applicant: Applicant) => Promise<Grant>,
  ): Promise<AdmittedAgent> {
    const { socket } = agent;
    const attempts = this.#attempts.get(socket) ?? 0;
    if (attempts >= HUB.attempts) {
      socket.destroy();
      throw new NotAuthorised(
        `${attempts} attempts on its connection were refused or are not decided yet: connect again`,
      );
    }
    // Counted first, because requests may come while one is judged.
    this.#attempts.set(socket, attempts + 1);
    const applicant = { ...agent, portOf: this.#portOf(socket)?.tenant, proved: () => this.#proved(socket) };
    const grant = await judge(applicant);
    this.#attempts.delete(socket);
    const { principal } = grant;
    const renew = async (token: string) => {
      this.renewals.take(grant);
      return await renewed(tenancy, { ...applicant, token }, principal);
    };
    return { tenant: principal.tenant, grant, ...(principal.shared && { renew }) };
  }

  /** What it may do is not known yet: a refusal costs no more than a session that ends at once. */
  #proved(socket: Socket): void {
    this.#portOf(socket)?.unproven.proved(socket);
  }

  #reachOf(query: string): Reach {
    try {
      return parseIdentifiers(query, this.#identifierLimits);
    } catch (error) {
      if (error instanceof AgentLimitError) throw error;
      throw new LinkRefused(400, (error as Error).message);
    }
  }
}

/** Lets the token of an agent be checked that asks for a link. Rejects with LinkRefused, or AgentLimitError. */
async function authenticate({ token, socket, signal }: Asking, check: Authenticate): Promise<void> {
  if (token === undefined) throw new LinkRefused(401, 'this hub wants a service account token');
  const source = sourceOf(addressOf(socket) ?? '');
  try {
    await check(token, { source, signal });
  } catch (error) {
    if (error instanceof AgentLimitError) throw error;
    throw new LinkRefused(403, `token was not accepted: ${(error as Error).message}`);
  }
}

/** Aborts when the peer has gone. */
function goneSignal(socket: Socket): AbortSignal {
  const gone = new AbortController();
  onceClosed(socket, () => gone.abort());
  return gone.signal;
}

interface StandsOptions {
  /** What its agent says of itself, which the tenant's file must allow whatever the session stands on. */
  readonly claim: Parameters<Grant['watch']>[1];
  readonly remote: string;
  readonly connection: Pick<NextHopConnection, 'destroyAndTell' | 'closed'>;
  readonly events: PlaneEvents;
}

/** Ends an agent's connection when its credential does not stand any more, or when it claims more than it may. Undefined: it needs none. */
export function standing(
  { grant, renew }: AdmittedAgent,
  { claim, remote, connection, events }: StandsOptions,
): SessionGrant | undefined {
  if (!grant) return undefined;
  const refused = (error: Error) => void events.emit('refused', refusedWhere(error, 'agents'), remote, error);
  const ended = (reason: Error) => {
    refused(reason);
    connection.destroyAndTell(reason);
  };
  const stands = new SessionGrant({ grant, claim, renew, ended, refused });
  void connection.closed.then(() => stands[Symbol.dispose]());
  return stands;
}

interface SessionGrantOptions extends Partial<Pick<StandsOptions, 'claim'>> {
  readonly grant: Grant;
  /** Verifies a fresh token. Unset: the session's credential is no token. Rejects with NotAuthorised. */
  readonly renew: ((token: string) => Promise<Grant>) | undefined;
  /** Called once when the session stands on nothing any more. */
  readonly ended: (reason: Error) => void;
  /** Called for a fresh token that is not taken. The session goes on for as long as the earlier one stands. */
  readonly refused: (error: Error) => void;
}

/** What a session stands on: one grant at a time. Dispose of it when the session has ended. */
export class SessionGrant implements Disposable {
  readonly #options: SessionGrantOptions;
  #unwatch: () => void;
  #busy = false;
  /** When the next token may come. */
  #notBefore = 0;
  #over = false;

  constructor(options: SessionGrantOptions) {
    this.#options = options;
    this.#unwatch = this.#watch(options.grant);
  }

  /** Lets the session stand on a fresh token, and calls `taken` when it does. */
  async renew(token: string, taken: () => void): Promise<void> {
    const { renew } = this.#options;
    if (!renew || this.#busy || performance.now() < this.#notBefore) {
      const text = renew ? 'fresh tokens come too fast' : 'the session stands on no token that could be renewed';
      this.#refuse(new Error(text));
      return;
    }
    this.#busy = true;
    this.#notBefore = performance.now() + HUB.renewAfterMs;
    try {
      const grant = await renew(token);
      if (this.#over) return;
      // The old one last: the session stands on one of them at any moment.
      const unwatch = this.#watch(grant);
      this.#unwatch();
      this.#unwatch = unwatch;
      taken();
    } catch (error) {
      this.#notBefore = performance.now() + HUB.renewAfterRefusalMs;
      if (!this.#over) this.#refuse(error as Error);
    } finally {
      this.#busy = false;
    }
  }

  [Symbol.dispose](): void {
    this.#over = true;
    this.#unwatch();
  }

  /** Its agent has proven who it is, even if its token is refused. */
  #refuse(error: Error): void {
    const { grant, refused } = this.#options;
    const { rule, principal, undecided = false } = error instanceof NotAuthorised ? error : {};
    if (principal) refused(error);
    else
      refused(
        new NotAuthorised(error.message, { rule: rule ?? grant.principal.rule, principal: grant.principal, undecided }),
      );
  }

  #watch(grant: Grant): () => void {
    return grant.watch((reason) => {
      this.#over = true;
      this.#options.ended(reason);
    }, this.#options.claim);
  }
}

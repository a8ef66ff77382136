import type { Socket } from 'node:net';
import type { Grant } from '@isthmus/admission';
import type { Tenancy } from '@isthmus/plane';
import { addressOf, sourceOf } from '@isthmus/runtime';
import {
  type AgentHello,
  AgentLimitError,
  type Authenticate,
  type agentService,
  DEFAULT_TENANT,
  type IdentifierLimits,
  LinkRefused,
  parseIdentifiers,
} from '@isthmus/transport';
import { type AgentIdentifiers, NotAuthorised } from '@isthmus/tunnel';
import { type Applicant, admitted, checkTenantRoom, renewed } from './applicant.ts';
import { RenewalRates } from './renewal-rates.ts';
import type { SessionTable } from './sessions.ts';

/**
 * How many attempts of one connection may be refused or under way. Agents connect anew for each attempt; a verification costs milliseconds,
 * and a request on an open connection next to nothing.
 */
const MOST_ATTEMPTS = 4;

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
  readonly #options: AgentAdmissionOptions;
  readonly #sessions: SessionTable;
  readonly #renewals = new RenewalRates();
  /** The tenant whose own port a connection came to. */
  readonly #portOf: (socket: Socket) => string | undefined;
  /** Attempts of a connection that were not admitted, or not yet. */
  readonly #attempts = new WeakMap<Socket, number>();

  constructor(options: AgentAdmissionOptions, sessions: SessionTable, portOf: (socket: Socket) => string | undefined) {
    this.#options = options;
    this.#sessions = sessions;
    this.#portOf = portOf;
  }

  /** Sessions of a tenant that were renewed in the last full second. */
  renewals(tenant: string): number {
    return this.#renewals.last(tenant);
  }

  /** What decides on Go agents, which bring no tenant: their credential names it. */
  get packets(): Pick<
    Parameters<typeof agentService<AdmittedAgent>>[0],
    'admit' | 'authenticate' | 'checkRoom' | 'identifierLimits'
  > {
    const { tenancy, authenticate } = this.#options;
    const identifierLimits = this.#identifierLimits;
    if (tenancy)
      return { identifierLimits, admit: ({ peer, ...agent }) => this.#identify(tenancy, { ...agent, ...peer }) };
    const checkRoom = (agentId: string) => this.checkRoom({ tenant: DEFAULT_TENANT }, agentId);
    return { identifierLimits, checkRoom, ...(authenticate && { authenticate }) };
  }

  /** Checks the cheap conditions first: a token review asks the API server. */
  async link({ tenant: claimedTenant, agentId, identifiers: query, token }: AgentHello, socket: Socket) {
    const { tenancy } = this.#options;
    const identifiers = this.#identifiersOf(query);
    const signal = goneSignal(socket);
    if (tenancy) return this.#identify(tenancy, { agentId, identifiers, token, socket, signal, claimedTenant });
    const agent: AdmittedAgent = { tenant: claimedTenant ?? DEFAULT_TENANT };
    this.checkRoom(agent, agentId);
    await this.#authenticate(token, socket, signal);
    this.checkRoom(agent, agentId);
    return agent;
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

  async #identify(tenancy: Tenancy, agent: Omit<Applicant, 'portOf'>): Promise<AdmittedAgent> {
    const { socket } = agent;
    const attempts = this.#attempts.get(socket) ?? 0;
    if (attempts >= MOST_ATTEMPTS) {
      socket.destroy();
      throw new NotAuthorised(
        `${attempts} attempts on its connection were refused or are not decided yet: connect again`,
      );
    }
    // Counted first, because requests may come while one is judged.
    this.#attempts.set(socket, attempts + 1);
    const applicant = { ...agent, portOf: this.#portOf(socket) };
    const grant = await admitted(tenancy, applicant, this.#sessions);
    this.#attempts.delete(socket);
    const { principal } = grant;
    const renew = async (token: string) => {
      this.#renewals.take(grant);
      return await renewed(tenancy, { ...applicant, token }, principal);
    };
    return { tenant: principal.tenant, grant, ...(principal.shared && { renew }) };
  }

  #identifiersOf(query: string): AgentIdentifiers {
    try {
      return parseIdentifiers(query, this.#identifierLimits);
    } catch (error) {
      if (error instanceof AgentLimitError) throw error;
      throw new LinkRefused(400, (error as Error).message);
    }
  }

  async #authenticate(token: string | undefined, socket: Socket, signal: AbortSignal): Promise<void> {
    const { authenticate } = this.#options;
    if (!authenticate) return;
    if (token === undefined) throw new LinkRefused(401, 'this hub wants a service account token');
    const source = sourceOf(addressOf(socket) ?? '');
    try {
      await authenticate(token, { source, signal });
    } catch (error) {
      if (error instanceof AgentLimitError) throw error;
      throw new LinkRefused(403, `token was not accepted: ${(error as Error).message}`);
    }
  }
}

/** Aborts when the peer has gone. */
function goneSignal(socket: Socket): AbortSignal {
  const gone = new AbortController();
  socket.once('close', () => gone.abort());
  return gone.signal;
}

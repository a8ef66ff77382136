import type { Socket } from 'node:net';
import type { AgentEvidence, Grant, Tenant } from '@isthmus/admission';
import type { Tenancy } from '@isthmus/plane';
import { addressOf, sourceOf } from '@isthmus/runtime';
import { AgentLimitError, serverNameOf, shownCertificate } from '@isthmus/transport';
import { type AgentIdentifiers, identifierCount, NotAuthorised, type Principal, principalText } from '@isthmus/tunnel';
import type { SessionTable } from './sessions.ts';

/** An agent that asks for a session at a hub with tenants, with what it claims and what it shows. */
export interface Applicant {
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly socket: Socket;
  /** Without `Bearer`. */
  readonly token: string | undefined;
  /** The tenant that it says it is of. */
  readonly claimedTenant?: string | undefined;
  /** The tenant whose own port it came to. */
  readonly portOf?: string | undefined;
  /** Aborts when it has gone. */
  readonly signal: AbortSignal;
}

/**
 * Finds out who an agent is, by its credential, and checks what it claims to be. Rejects with NotAuthorised, whose text and rule name
 * the tenant's file, and AgentLimitError.
 */
export async function admitted(tenancy: Tenancy, applicant: Applicant, sessions: SessionTable): Promise<Grant> {
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
export async function renewed(tenancy: Tenancy, applicant: Applicant, before: Principal): Promise<Grant> {
  const grant = await verified(tenancy, applicant);
  const { principal } = grant;
  if (principalText(principal) === principalText(before)) return grant;
  const text = `the fresh token of agent ${applicant.agentId} is of ${principalText(principal)}, and its session of ${principalText(before)}`;
  throw new NotAuthorised(text, { rule: principal.rule, principal: before });
}

async function verified({ identify, admit }: Tenancy, applicant: Applicant): Promise<Grant> {
  const grant = await identify.agent(evidenceOf(applicant));
  admit(grant, applicant);
  return grant;
}

/** @throws AgentLimitError if the tenant's limits leave no room for another session of the agent */
export function checkTenantRoom(tenant: Tenant, agentId: string, sessions: SessionTable): void {
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

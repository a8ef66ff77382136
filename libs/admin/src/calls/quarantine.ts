import type { AgentName } from '@isthmus/tunnel';
import type { AdminBackend, QuarantinePart } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import { absent, type Call, exhausted, invalid, tenantAsked, tunnelsBySession, unavailable } from './messages.ts';

export const quarantine: Call<'quarantine'> = async (backend, { agent: asked, lift, reason }) => {
  const part = partOf(backend);
  // What is in quarantine can be let out after its tenant was removed.
  const tenant = (lift && asked?.tenant) || tenantAsked(backend, asked?.tenant);
  const agent = { tenant, agentId: asked?.agentId ?? '' };
  if (agent.agentId === '') throw invalid('agent.agent_id is empty: name the agent');
  if (!lift && reason === '') throw invalid('reason is empty: say why, so that other operators know');
  if (reason.length > ADMIN.reason) {
    throw invalid(`reason has ${reason.length} characters: want at most ${ADMIN.reason}`);
  }
  const wasIn = part.reasonFor(agent) !== undefined;
  const names = namesOf(backend, agent);
  for (const agentId of names) await part.set({ ...agent, agentId }, lift ? undefined : reason).catch(refused);
  const { agentId } = agent;
  const what = lift ? 'operator let an agent out of quarantine' : 'operator put an agent into quarantine';
  backend.log.info({ agent: agentId, tenant, ...(!lift && { reason }) }, what);
  const through = tunnelsBySession(backend.tunnels());
  const sessions = [...backend.sessions()].filter(
    (session) => session.tenant === tenant && (names.has(session.agentId) || names.has(session.credential ?? '')),
  );
  const tunnels = sessions.reduce((sum, { sessionId }) => sum + (through.get(sessionId) ?? 0), 0);
  return { sessions: sessions.length, tunnels, tenant, known: wasIn || sessions.length > 0 };
};

export const listQuarantined: Call<'listQuarantined'> = async (backend, { tenant: of }) => {
  const agents = [...partOf(backend).list()].filter(({ tenant }) => of === '' || tenant === of);
  return { agents: agents.map(({ tenant, agentId, reason = '' }) => ({ tenant, agentId, reason })) };
};

/**
 * The names in the credentials of the agent's sessions, or its id if it has no session, or none with a credential of its own: with another
 * id it would be out of quarantine at once.
 */
function namesOf(backend: AdminBackend, { tenant, agentId }: AgentName): Set<string> {
  const names = new Set<string>();
  for (const session of backend.sessions())
    if (session.tenant === tenant && session.agentId === agentId) names.add(session.credential ?? agentId);
  return names.size > 0 ? names : new Set([agentId]);
}

function partOf({ quarantine }: AdminBackend): QuarantinePart {
  if (quarantine) return quarantine;
  throw absent('an agent cannot put itself into quarantine: ask a gateway or hub of its plane');
}

/** Maps the registry's errors by name, because the registry's implementation is not known here. */
function refused(error: Error): never {
  if (error.name === 'RangeError') throw invalid(error.message);
  if (error.name === 'QuarantineFull') throw exhausted(error.message);
  if (error.name === 'RegistryUnavailable') {
    // The registry may hold it even though its answer was lost.
    throw unavailable(
      `${error.message}: the change may have been stored anyway; the list will show it, and repeating the request is safe`,
    );
  }
  throw error;
}

import { type Candidate, type Explanation, serves } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import type { RoutingPart } from './routing.ts';

interface Asked {
  readonly tenant: string;
  readonly backend: AdminBackend;
}

/** Maximum number of names in one sentence. */
const MAX_NAMES = 5;

/** Returns in one sentence what would happen to a dial now. */
export function verdictOf(
  { policy, steps, others, taken }: Explanation,
  { tenant, routing, backend }: Asked & { readonly routing: RoutingPart },
): string {
  if (policy?.allowed === false) {
    const why = policy.rule === '' ? 'no rule allows it' : `rule ${policy.rule}`;
    return `a dial fails with 403 at once: the policy of tenant ${tenant} refuses it (${why})`;
  }
  const full = fullLimit(tenant, backend);
  if (full) return `a dial is refused at once: ${full.says}`;
  if (taken) {
    const { agentId, hubId, sessionId } = taken;
    const step = steps.find(({ candidates }) => candidates.some(({ standing }) => standing === 'taken'));
    return `strategy ${step?.strategy} sends a dial to agent ${agentId} on hub ${hubId}, through session ${sessionId}`;
  }
  const found = candidatesOf(steps);
  const fails = 'fails with "No agent available"';
  const wait = `waits up to ${routing.parkTimeout / 1000} s for`;
  const lost = found.some(({ quarantined }) => quarantined === undefined);
  if (lost) return `a dial ${wait} a link to a hub that has a session for it, then fails`;
  if (found.length > 0) return `a dial ${fails} at once: all agents that serve this destination are in quarantine`;
  if (others.length === 0) return `a dial ${wait} a session of tenant ${tenant}, then ${fails}`;
  return `a dial ${fails} at once: no agent of tenant ${tenant} serves this destination`;
}

/** Returns what to do if no session can be chosen, in the order to try. */
export function routingAdvice(
  { policy, steps, others, taken }: Explanation,
  { tenant, host, backend }: Asked & { readonly host: string },
): string[] {
  if (policy?.allowed === false) return [policyAdvice(tenant, policy.rule)];
  const full = fullLimit(tenant, backend);
  if (full) return [full.advice];
  if (taken) return [];
  const found = candidatesOf(steps);
  if (found.length > 0) return [...quarantineAdvice(found), ...linkAdvice(found)];
  const lost = [...registryAdvice(backend), ...lossAdvice(tenant, host, backend)];
  if (others.length > 0) return [...lost, identifierAdvice(steps, others)];
  return [...lost, agentAdvice(tenant, backend)];
}

/** The limits of a tenant that refuse dials while as much is held as they allow. */
const HOLDING = ['tunnels', 'pendingDials', 'bytesQueued'];

/** Returns what refuses every dial of a tenant here. */
function fullLimit(tenant: string, { tenants }: AdminBackend): { says: string; advice: string } | undefined {
  const use = [...(tenants?.list() ?? [])].find(({ name }) => name === tenant)?.use ?? {};
  const [limit, held] =
    Object.entries(use).find(([name, { used, most }]) => HOLDING.includes(name) && used >= most) ?? [];
  if (!held) return undefined;
  return {
    says: `tenant ${tenant} uses ${Math.round(held.used)} of ${held.most} ${limit} at this gateway`,
    advice:
      `end what leaks or stalls (isthmus tunnels --tenant ${tenant} --sort age, isthmus kick tunnel), ` +
      `or raise limits.${limit} in the tenant's file`,
  };
}

/** Agents that served the destination, and went away. */
function lossAdvice(tenant: string, host: string, { losses }: AdminBackend): string[] {
  const lost = (losses?.list() ?? []).filter(
    (loss) => loss.tenant === tenant && loss.identifiers && serves(loss.identifiers, host),
  );
  if (lost.length === 0) return [];
  const since = new Date(Math.max(...lost.map(({ at }) => at))).toISOString().slice(11, 19);
  return [
    `agent ${names(lost.map(({ id }) => id))} served it, and has no session since ${since} UTC: look at its log, or ask ` +
      'isthmus status --address with its admin port. If it runs, isthmus check says whether hubs refuse it',
  ];
}

function policyAdvice(tenant: string, rule: string): string {
  const change = rule === '' ? 'add a rule to dial.allow' : `change rule ${rule}`;
  return `if callers of tenant ${tenant} should reach it, ${change} in the tenant's file`;
}

/** Returns each session once. */
function candidatesOf(steps: Explanation['steps']): Candidate[] {
  const all = steps.flatMap(({ candidates }) => candidates);
  return [...new Map(all.map((candidate) => [candidate.session.sessionId, candidate])).values()];
}

function quarantineAdvice(found: readonly Candidate[]): string[] {
  const agents = names(
    found.filter(({ quarantined }) => quarantined !== undefined).map(({ session }) => session.agentId),
  );
  return agents === '' ? [] : [`lift the quarantine of agent ${agents} if it can dial again`];
}

function linkAdvice(found: readonly Candidate[]): string[] {
  const hubs = names(found.filter(({ reachable }) => !reachable).map(({ session }) => session.hubId));
  if (hubs === '') return [];
  return [
    `this gateway has no link to hub ${hubs}: its log says why ("hub cannot be reached"). Check that the hub runs, ` +
      'that its --advertise-address leads from here to its --peer-port, and that both sides trust --peer-ca-cert',
  ];
}

function identifierAdvice(steps: Explanation['steps'], others: readonly Candidate[]): string {
  const keys = names(steps.flatMap((step) => step.keys.map(({ key }) => key)));
  const agents = names(others.map(({ session }) => session.agentId));
  const looked = keys === '' ? 'these strategies look up nothing for it' : `looked up: ${keys}`;
  return (
    `give an agent --agent-identifiers that match the destination (${looked}; agents of this tenant: ${agents}), ` +
    'or add default to --proxy-strategies: then every agent serves every destination'
  );
}

function registryAdvice({ plane }: AdminBackend): string[] {
  if (!plane || (plane.registry.up && plane.registry.synced)) return [];
  return [
    `the registry does not do its work (${plane.registry.detail}), so agents that connect now are not found: check Redis, and --redis-url`,
  ];
}

function agentAdvice(tenant: string, { sessions, plane }: AdminBackend): string {
  const others = names([...sessions()].map((session) => session.tenant));
  const elsewhere = others === '' ? '' : ` (there are sessions of tenant ${others})`;
  if (plane && [...plane.hubs()].length === 0) {
    return 'the registry lists no hub: start one with the same --redis-url and --plane as this gateway';
  }
  return (
    `no agent of tenant ${tenant} has a session${elsewhere}: start one, or read in its log why it does not connect. ` +
    "Its --proxy-server-host and --proxy-server-port must lead to a hub, and its --ca-cert must hold the CA of the hub's --cluster-cert"
  );
}

function names(all: readonly string[]): string {
  const each = [...new Set(all)];
  const more = each.length - MAX_NAMES;
  return each.slice(0, MAX_NAMES).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

import {
  keyText,
  type LeftOut,
  type Lookup,
  type Rank,
  type Routed,
  type Session,
  type Strategy,
  serves,
} from '@isthmus/directory';
import { adminApi } from '@isthmus/proto/admin';
import {
  type Destination,
  type Dial,
  DialError,
  formatDestination,
  type PlaneEvents,
  type PolicyVerdict,
  parseDestination,
} from '@isthmus/tunnel';
import { GAUGE_LIMITS } from '@isthmus/tunnel/limits';
import type { AdminBackend } from '../backend.ts';
import { ADMIN } from '../defaults.ts';
import { absent, type Call, invalid, tenantAsked } from './messages.ts';

const { STANDING_TAKEN, STANDING_EQUAL, STANDING_LATER, STANDING_NOT } = adminApi.Candidate_Standing;

/** A gateway's dialling, for an operator to explain and to try. */
export interface RoutingPart {
  /** The tenant of callers that name none. */
  readonly tenant: string;
  readonly zone: string;
  readonly strategies: readonly Strategy[];
  /** How long a dial may take, and how much of that it may wait for a session to open, in milliseconds. */
  readonly dialTimeout: number;
  readonly parkTimeout: number;
  /** The gateway's Dial as callers use it: admitted, routed, observed. */
  readonly dial: Dial;
  readonly events: PlaneEvents;
  /** What the strategies look up for a host. */
  lookups(tenant: string, host: string): Iterable<Lookup>;
  /** The sessions that a dial would try now, in order, then those that it would not. */
  route(tenant: string, host: string): Iterable<Routed>;
  /** The rule by which the gateway dials a destination itself, without an agent; undefined if it routes it. */
  direct(tenant: string, destination: Destination, caller: string): string | undefined;
  /** What a tenant's policy says about a dial of a caller, by the caller's name; undefined for a tenant without one. */
  policy(tenant: string, destination: Destination, caller: string): PolicyVerdict | undefined;
}

/** @throws ServerError if the program is no gateway */
export function routingOf(part: RoutingPart | undefined): RoutingPart {
  if (part) return part;
  throw absent('this program routes no dials: ask a gateway of the plane');
}

/** Parses the destination in an operator's request. @throws ServerError */
export function destinationOf(text: string): Destination {
  try {
    return parseDestination(text);
  } catch (error) {
    throw error instanceof DialError ? invalid(error.message) : error;
  }
}

/** What an operator asks. */
interface Question {
  readonly tenant: string;
  readonly destination: Destination;
  readonly routing: RoutingPart;
  readonly backend: AdminBackend;
}

/** The sessions for a dial. */
interface Routing {
  readonly steps: readonly adminApi.RoutingStep[];
  /** The tenant's sessions that no strategy finds. */
  readonly others: readonly adminApi.Candidate[];
  /** Those that are found, each session once. */
  readonly found: ReadonlyMap<string, adminApi.Candidate>;
  readonly taken: adminApi.Candidate | undefined;
}

/** What the answer is made from. */
interface Explanation extends Routing {
  /** Unset if there is none. A dial that it refuses is not routed. */
  readonly policy: PolicyVerdict | undefined;
  /** The rule by which the gateway dials itself. Such a dial is not routed either. */
  readonly direct: string | undefined;
}

/** Explains how a dial would be routed now, and why. Dials nothing, and changes nothing. */
export const explain: Call<'explain'> = async (backend, { destination: text, tenant: named, caller }) => {
  const routing = routingOf(backend.routing);
  const destination = destinationOf(text);
  const tenant = tenantAsked(backend, named);
  const question = { tenant, destination, routing, backend };
  const policy = routing.policy(tenant, destination, caller);
  const refused = policy?.allowed === false;
  const direct = refused ? undefined : routing.direct(tenant, destination, caller);
  const routed = refused || direct !== undefined ? NOT_ROUTED : explained(question);
  const explanation = { policy, direct, ...routed };
  const { steps, others, taken } = explanation;
  return {
    destination: formatDestination(destination),
    tenant,
    zone: routing.zone,
    steps: [...steps],
    others: [...others],
    sessionId: taken?.sessionId ?? '',
    agentId: taken?.agentId ?? '',
    hubId: taken?.hubId ?? '',
    verdict: verdictOf(explanation, question),
    advice: adviceOf(explanation, question),
    ...(policy && { policy }),
  };
};

const NOT_ROUTED: Routing = { steps: [], others: [], found: new Map(), taken: undefined };

/** Returns the sessions of a dial's route, by strategy, each with the reason for its place. */
export function explained({ tenant, destination: { host }, routing }: Omit<Question, 'backend'>): Routing {
  const others: adminApi.Candidate[] = [];
  const found = new Map<string, adminApi.Candidate>();
  const steps = routing.strategies.map((strategy) => ({
    strategy,
    keys: new Map<string, adminApi.RoutingKey>(),
    candidates: [] as adminApi.Candidate[],
    taken: false,
  }));
  for (const { step, key } of routing.lookups(tenant, host)) {
    steps[step]?.keys.set(key, { key: keyText(key), sessions: 0 });
  }
  const words = new Words(routing);
  let listed = 0;
  let taken: adminApi.Candidate | undefined;
  for (const routed of routing.route(tenant, host)) {
    const candidate = words.candidate(routed);
    const { step, key } = routed.rank ?? routed.leftOut;
    const at = steps[step];
    if (!at) {
      others.push(candidate);
      if (others.length === ADMIN.otherCandidates) break;
      continue;
    }
    if (candidate.standing === STANDING_TAKEN) {
      taken = candidate;
      at.taken = true;
    }
    const looked = at.keys.get(key);
    if (looked) looked.sessions++;
    if (!found.has(candidate.sessionId)) found.set(candidate.sessionId, candidate);
    if (listed++ < ADMIN.candidates) at.candidates.push(candidate);
  }
  return { steps: steps.map((each) => ({ ...each, keys: [...each.keys.values()] })), others, found, taken };
}

/** Says why each session is where it is in a route. */
class Words {
  readonly #routing: Pick<RoutingPart, 'strategies' | 'zone'>;
  /** The rank of the first session, which a dial takes, and the sessions that have it. */
  #first: Rank | undefined;
  readonly #firsts = new Set<Session>();

  constructor(routing: Pick<RoutingPart, 'strategies' | 'zone'>) {
    this.#routing = routing;
  }

  /** Call this with the sessions of a route in their order. */
  candidate({ session, rank, leftOut }: Routed): adminApi.Candidate {
    const { record, open, state } = session;
    const { sessionId, agentId, hubId } = record;
    const { zone, draining, quarantined } = state;
    const described = {
      ...{ sessionId, agentId, hubId, zone, draining, open },
      quarantined: quarantined !== undefined,
      quarantineReason: quarantined ?? '',
    };
    if (leftOut) {
      const { key, reachable, suspected } = leftOut;
      const why = this.#leftOut(session, leftOut);
      return { ...described, key: keyText(key), reachable, suspected, standing: STANDING_NOT, why };
    }
    const ranked = { ...described, key: keyText(rank.key), reachable: true, suspected: rank.suspected };
    const first = this.#first;
    if (rank === first || !first) {
      this.#first = rank;
      this.#firsts.add(session);
      if (!first) return { ...ranked, standing: STANDING_TAKEN, why: '' };
      return { ...ranked, standing: STANDING_EQUAL, why: 'just as good: chance and fewer open tunnels decide' };
    }
    return { ...ranked, standing: STANDING_LATER, why: this.#later(session, rank, first) };
  }

  #leftOut({ record: { agentId, hubId }, state }: Session, { why }: LeftOut): string {
    switch (why) {
      case 'quarantined':
        return `agent ${agentId} is in quarantine: ${state.quarantined}`;
      case 'tried':
        return 'it was tried already';
      case 'unreachable':
        return `no link to hub ${hubId}`;
      case 'unfound':
        return 'its agent names nothing that a strategy looks up for this destination';
    }
  }

  /** Returns why a rank is behind the first one: the most significant difference between the two. */
  #later(session: Session, rank: Rank, first: Rank): string {
    const { strategies, zone } = this.#routing;
    if (rank.suspected !== first.suspected) return 'it, or its hub, left a dial without a sign of life a moment ago';
    if (rank.step !== first.step) return `strategy ${strategies[first.step]} comes first, and finds a session`;
    if (rank.key !== first.key)
      return this.#firsts.has(session)
        ? 'a longer prefix leads to it already'
        : 'a longer prefix leads to another session';
    if (rank.place === 'draining') return 'it drains';
    const busy = 'its agent carries too much: far more tunnels of this gateway than another';
    if (rank.place === 'own') return busy;
    if (first.place === 'own') return "it is at another hub, and the one in this gateway's own process comes first";
    if (rank.skipsBusy !== first.skipsBusy) return busy;
    return `its hub is in zone ${JSON.stringify(session.state.zone)}, and this gateway in ${JSON.stringify(zone)}`;
  }
}

/** Returns in one sentence what would happen to a dial now. */
function verdictOf({ policy, direct, steps, others, found, taken }: Explanation, question: Question): string {
  const { tenant, routing, backend } = question;
  if (policy?.allowed === false) {
    const why = policy.rule === '' ? 'no rule allows it' : `rule ${policy.rule}`;
    return `a dial fails with 403 at once: the policy of tenant ${tenant} refuses it (${why})`;
  }
  const full = fullLimit(tenant, backend);
  if (full) return `a dial is refused at once: ${full.says}`;
  if (direct !== undefined) return `the gateway dials it itself, without an agent (rule ${direct})`;
  if (taken) {
    const { agentId, hubId, sessionId } = taken;
    const step = steps.find((each) => each.taken);
    return `strategy ${step?.strategy} sends a dial to agent ${agentId} on hub ${hubId}, through session ${sessionId}`;
  }
  const fails = 'fails with "No agent available"';
  const wait = `waits up to ${routing.parkTimeout / 1000} s for`;
  const lost = [...found.values()].some(({ quarantined }) => !quarantined);
  if (lost) return `a dial ${wait} a link to a hub that has a session for it, then fails`;
  if (found.size > 0) return `a dial ${fails} at once: all agents that serve this destination are in quarantine`;
  if (others.length === 0) return `a dial ${wait} a session of tenant ${tenant}, then ${fails}`;
  return `a dial ${fails} at once: no agent of tenant ${tenant} serves this destination`;
}

/** Returns what to do if no session can be chosen, in the order to try. */
function adviceOf({ policy, direct, steps, others, found, taken }: Explanation, question: Question): string[] {
  const { tenant, destination, backend } = question;
  if (policy?.allowed === false) return [policyAdvice(tenant, policy.rule)];
  const full = fullLimit(tenant, backend);
  if (full) return [full.advice];
  if (taken || direct !== undefined) return [];
  if (found.size > 0) return [...quarantineAdvice([...found.values()]), ...linkAdvice([...found.values()])];
  const lost = [...registryAdvice(backend), ...lossAdvice(tenant, destination.host, backend)];
  if (others.length > 0) return [...lost, identifierAdvice(steps, others)];
  return [...lost, agentAdvice(tenant, backend)];
}

/** Returns what refuses every dial of a tenant here. */
function fullLimit(tenant: string, { tenants }: AdminBackend): { says: string; advice: string } | undefined {
  const use = [...(tenants?.list() ?? [])].find(({ name }) => name === tenant)?.use ?? {};
  const limit = GAUGE_LIMITS.find((name) => (use[name]?.used ?? 0) >= (use[name]?.most ?? Number.POSITIVE_INFINITY));
  const held = limit && use[limit];
  if (!held) return undefined;
  return {
    says: `tenant ${tenant} uses ${Math.round(held.used)} of ${held.most} ${limit} at this gateway`,
    advice:
      `end what leaks or stalls (isthmus tunnels --tenant ${tenant} --sort age, isthmus kick tunnel), ` +
      `or raise limits.${limit} in the tenant's file`,
  };
}

/** Agents that served the destination, and went away. */
function lossAdvice(tenant: string, host: string, { recent }: AdminBackend): string[] {
  const lost = recent
    .losses()
    .filter((loss) => loss.tenant === tenant && loss.identifiers && serves(loss.identifiers, host));
  if (lost.length === 0) return [];
  const since = new Date(Math.max(...lost.map(({ atMs }) => atMs))).toISOString().slice(11, 19);
  return [
    `agent ${names(lost.map(({ id }) => id))} served it, and has no session since ${since} UTC: look at its log, or ask ` +
      'isthmus status --address with its admin port. If it runs, isthmus check says whether hubs refuse it',
  ];
}

function policyAdvice(tenant: string, rule: string): string {
  const change = rule === '' ? 'add a rule to dial.allow' : `change rule ${rule}`;
  return `if callers of tenant ${tenant} should reach it, ${change} in the tenant's file`;
}

function quarantineAdvice(found: readonly adminApi.Candidate[]): string[] {
  const agents = names(found.filter(({ quarantined }) => quarantined).map(({ agentId }) => agentId));
  return agents === '' ? [] : [`lift the quarantine of agent ${agents} if it can dial again`];
}

function linkAdvice(found: readonly adminApi.Candidate[]): string[] {
  const hubs = names(found.filter(({ reachable }) => !reachable).map(({ hubId }) => hubId));
  if (hubs === '') return [];
  return [
    `this gateway has no link to hub ${hubs}: isthmus hubs says why. Check that the hub runs, ` +
      'that its --advertise-address leads from here to its --peer-port, and that both sides trust --peer-ca-cert',
  ];
}

function identifierAdvice(steps: Explanation['steps'], others: readonly adminApi.Candidate[]): string {
  const keys = names(steps.flatMap((step) => step.keys.map(({ key }) => key)));
  const agents = names(others.map(({ agentId }) => agentId));
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
    `no agent of tenant ${tenant} has a session${elsewhere}: start one; isthmus check says whom hubs refuse, and why. ` +
    "Its --proxy-server-host and --proxy-server-port must lead to a hub, and its --ca-cert must hold the CA of the hub's --cluster-cert"
  );
}

function names(all: readonly string[]): string {
  const each = [...new Set(all)];
  const more = each.length - ADMIN.namesInAdvice;
  return each.slice(0, ADMIN.namesInAdvice).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

import { Hub_Link, Role } from '@isthmus/proto/admin-enums';
import { farOff } from './clocks.ts';
import { FINDINGS } from './defaults.ts';
import { type Evidence, type Loss, type Refusal, registryFaults, type Session } from './evidence.ts';
import { age, agentName, type Finding, plural, type Report, type Result } from './result.ts';

/** What a wrong clock lets a member say of certificates and tokens that are valid. */
const OF_TIME = /expired|not yet valid|not valid before/i;

/** Whether gateways reach hubs, and all the registry. */
export function ofLinks(evidence: Evidence, report: Report): Result[] {
  const { members, hubs } = evidence;
  const down = hubs.flatMap((hub): Finding[] => {
    const { hubId, peerAddress } = hub;
    const gateways = cutOff(hubId, members);
    if (gateways.length === 0) return [];
    const detail = `hub at ${peerAddress}: ${gateways.join(', ')} cannot reach it`;
    const silent = members.some(({ id, status }) => id === hubId && !status);
    const why = members.flatMap(({ list }) => list?.hubs.find((each) => each.hubId === hubId)?.failure?.text ?? []);
    const ofTime = why.find((text) => OF_TIME.test(text));
    const clock = clockTodo(evidence, [hubId, ...gateways]);
    const compare = `compare the clocks of ${[hubId, ...gateways].join(', ')} first`;
    if (silent && ofTime !== undefined) return [report.fail(hubId, `${detail}: ${ofTime}`, clock ?? compare)];
    const todo = silent
      ? 'its admin port does not answer either: it hangs, is down, or cut off. Look at its machine and its log, and restart it. Meanwhile agents and dials use the other hubs'
      : ((why.length === 0 || ofTime ? clock : undefined) ??
        'isthmus hubs says why; check its log, its --advertise-address, and --peer-ca-cert of both');
    return [report.fail(hubId, detail, todo)];
  });
  const faults = Map.groupBy(registryFaults(evidence), ({ detail }) => detail);
  const registry = [...faults].map(([detail, own]) => {
    const ids = own.map(({ id }) => id).join(', ');
    return report.fail('Redis', `${ids} cannot use it: ${detail}`, registryLost(detail));
  });
  const well = members.flatMap(({ id, roles, list }) => {
    if (!roles.includes('gateway') || !list || list.registry?.up === false) return [];
    if (list.hubs.some(({ link }) => link === Hub_Link.LINK_DOWN)) return [];
    return [report.pass(id, `reaches ${list.hubs.length === 1 ? 'its hub' : `all ${list.hubs.length} hubs`}`)];
  });
  return [...down, ...registry, ...well];
}

/** What to do first where certificates seem invalid because a clock is wrong. @param ids of the members that judge them */
export function clockTodo(evidence: Evidence, ids: readonly string[]): string | undefined {
  const [wrong] = ids.flatMap((id) => {
    const off = farOff(evidence, id);
    return off === undefined ? [] : `the clock of ${id} is ${off} most others: set it first (clocks)`;
  });
  return wrong;
}

/** Returns the gateways that have no link to a hub and want one. */
export function cutOff(hubId: string, members: Evidence['members']): string[] {
  const lost = ({ list, roles }: Evidence['members'][number]) =>
    roles.includes('gateway') && list?.hubs.some((hub) => hub.hubId === hubId && hub.link === Hub_Link.LINK_DOWN);
  return members.filter(lost).map(({ id }) => id);
}

/** Returns the members that have a link to a hub. */
export function reachedBy(hubId: string, members: Evidence['members']): string[] {
  const reaches = ({ list }: Evidence['members'][number]) =>
    list?.hubs.some((hub) => hub.hubId === hubId && hub.link === Hub_Link.LINK_UP);
  return members.filter(reaches).map(({ id }) => id);
}

/** What is said where Redis does not do its work, and what to do. */
const REGISTRY_TODO: readonly (readonly [said: RegExp, todo: string])[] = [
  [/^bad (Redis URL|plane name)/, 'correct the flag as the text says'],
  [/^(?=.*\b(ENOENT|EACCES): )(?=.*, open )/s, 'make the file readable, or correct the flag that names it'],
  [
    /READONLY|is a replica\b/,
    'Redis is read-only, as a replica is: make this server the primary again (redis-cli REPLICAOF NO ONE), or lead --redis-url to the primary',
  ],
  [/takes no writes/, "see Redis' log, and cure the cause there"],
  [
    /NOPERM|can't run this command/,
    'its user lacks a right that a plane needs: isthmus check --redis-url names it, and the ACL SETUSER that gives it',
  ],
  [/WRONGPASS|NOAUTH/, 'correct the user name or password: programs read --redis-password-file again by themselves'],
  [/max number of clients/, 'raise its maxclients, or end what else connects to it (CLIENT LIST)'],
  [/\b(BUSY|LOADING)\b/, 'it runs, and is busy: wait, or end its script (redis-cli SCRIPT KILL)'],
  [
    /WRONGTYPE/,
    "another program writes keys of this plane's name: give one of them another name (--plane), and delete the key that is wrong",
  ],
];

/** Says what to do about a registry that does not do its work. @param otherwise what to do if nothing is known of what it says */
export function registryTodo(
  detail: string,
  otherwise = 'check that Redis runs and that --redis-url leads to it: isthmus check --redis-url says more',
): string {
  return REGISTRY_TODO.find(([said]) => said.test(detail))?.[1] ?? otherwise;
}

/** The same of a plane whose members cannot use it, with what that plane is like. */
export function registryLost(detail: string): string {
  return `${registryTodo(detail)}. Until then, gateways dial by their copy of the registry: agents that connect now are not found, and lists of members are not complete`;
}

/** Does every agent survive the loss of a hub? */
export function ofAgents(evidence: Evidence, report: Report): Result[] {
  const { sessions } = evidence;
  const hubs = evidence.hubs.filter(({ draining }) => !draining).length;
  // An agent knows its own alone.
  const [first, ...others] = evidence.members;
  if (first && [first, ...others].every(({ roles }) => roles.includes('agent')))
    return evidence.members.flatMap((member) => ofOneAgent(member, report));
  if (evidence.sessionsUntold)
    return [report.fail('the plane', 'no member tells of sessions', 'isthmus agents says why each of them does not')];
  if (sessions.length === 0) {
    const todo = "check the agents' logs, their --proxy-server-host, --ca-cert and certificate, and the refusals";
    return [report.fail('the plane', 'no agent has a session: no dial can succeed', todo)];
  }
  // What hubs a gateway knows an agent at may be old then.
  const old = registryFaults(evidence).length > 0;
  const agents = Map.groupBy(sessions, ({ tenant, agentId }) => agentName(tenant, agentId));
  const judged = [...agents].map(([name, own]) => {
    const [first] = own as [Session];
    if (first.quarantined) {
      const of = first.tenant === 'default' ? '' : ` --tenant ${first.tenant}`;
      const todo = `when the reason is gone: isthmus quarantine ${first.agentId}${of} --lift, or lift it in the console`;
      return report.warn(name, `is in quarantine: ${first.quarantineReason}`, todo);
    }
    const held = new Set(own.map(({ hubId }) => hubId)).size;
    if (held === 1 && hubs > 1 && !old) {
      const todo =
        'set its --session-count to 2 or more, and make sure that it reaches the other hubs (their --advertise-agent-address)';
      return report.warn(name, `has a session with only ${first.hubId}, of ${hubs} hubs`, todo);
    }
    return report.pass(name, `has ${held === 1 ? 'a session with one hub' : `sessions with ${held} of ${hubs} hubs`}`);
  });
  return [...withoutAgents(evidence, report), ...judged];
}

/** What an agent says of itself. */
function ofOneAgent({ id, list }: Evidence['members'][number], report: Report): Result[] {
  if (!list) return [];
  const { servers, serversWanted: wanted } = list;
  const detail = `has sessions with ${servers.length} of ${wanted} servers`;
  if (servers.length >= wanted && wanted > 0) return [report.pass(id, detail)];
  const todo = 'isthmus status --address with its admin port says which it cannot reach; see its log';
  return [(servers.length === 0 ? report.fail : report.warn)(id, detail, todo)];
}

/** Tenants whose dials fail because they have no agent. One that nobody dials waits for its first agent. */
function withoutAgents({ members, sessions }: Evidence, report: Report): Finding[] {
  const served = new Set(sessions.map(({ tenant }) => tenant));
  const failed = new Map<string, number>();
  for (const { tenant, count } of members.flatMap(({ status }) => status?.failing ?? []))
    if (!served.has(tenant)) failed.set(tenant, (failed.get(tenant) ?? 0) + count);
  return [...failed].map(([tenant, count]) => {
    const todo = `start one, or see who is refused (refusals) and who went away (missing); isthmus tenants ${tenant} shows the tenant`;
    const detail = `no agent has a session: ${plural(count, 'dial')} of its callers failed in the last minutes`;
    return report.fail(`tenant ${tenant}`, detail, todo);
  });
}

/**
 * What went away without a word. The plane forgets a hub or agent that dies or hangs within seconds. Without this finding, all looks well
 * then.
 */
export function ofMissing(evidence: Evidence, report: Report): Finding[] {
  const ago = ({ agoMs }: Missing) => `${age(agoMs)} ago`;
  const servers = (role: number, what: string, meanwhile: string) =>
    lost(evidence, role).map((loss) => {
      const { id, remote, reason, by } = loss;
      const detail = `${what} at ${remote}, was lost ${ago(loss)} by ${by.join(', ')}, and has not come back: ${reason}`;
      const todo = `unless you removed it: its process hangs, has ended, or is cut off. Look at its machine and its log, and restart it. Meanwhile ${meanwhile}`;
      return report.warn(id, detail, todo);
    });
  const agents = missing(evidence, Role.ROLE_AGENT).flatMap((loss) => {
    const { tenant, id, hubId, remote, reason, left } = loss;
    const alone = left ? onlyServedBy(loss, evidence.sessions) : '';
    // Another does its work: a rollout, or fewer replicas.
    if (alone === undefined) return [];
    const from = remote === '' ? '' : ` from ${remote}`;
    const how = left
      ? `left ${hubId}${from} ${ago(loss)}, and no other agent serves ${alone}`
      : `${hubId} lost the last one${from} ${ago(loss)}${reason === '' ? '' : `: ${reason}`}`;
    const detail = `agent without a session: ${how}`;
    const todo =
      'unless you removed it: look at its machine and its log; isthmus status --address with its admin port shows its side';
    return report.warn(agentName(tenant, id), detail, todo);
  });
  return [
    ...servers(Role.ROLE_GATEWAY, 'gateway with its admin port', 'its callers need another gateway'),
    ...servers(Role.ROLE_HUB, 'hub', 'agents and dials use the other hubs'),
    ...agents,
  ];
}

/** What no agent of the tenant names any more since one left; undefined if there is nothing. */
function onlyServedBy({ tenant, identifiers }: Loss, sessions: readonly Session[]): string | undefined {
  const others = sessions.filter((session) => session.tenant === tenant);
  if (others.length === 0) return `tenant ${tenant}`;
  const here = new Set(others.flatMap((session) => servedBy(session.identifiers)));
  const gone = servedBy(identifiers).filter((name) => !here.has(name));
  return gone.length === 0 ? undefined : gone.slice(0, FINDINGS.suspects).join(', ');
}

/** What an agent says that it serves, by the words of --agent-identifiers. The strategy `default` may send it anything else. */
export function servedBy(identifiers: Session['identifiers']): string[] {
  if (!identifiers) return [];
  const { ipv4, ipv6, host, cidr, defaultRoute } = identifiers;
  return [...host, ...cidr, ...ipv4, ...ipv6, ...(defaultRoute ? ['default-route'] : [])];
}

/** A loss, and the members that saw it. */
interface Missing extends Loss {
  readonly by: readonly string[];
  readonly agoMs: number;
}

/** Gateways, hubs or agents that went away and are nowhere else in the plane, each once: as the member tells it that knows most. */
function missing(evidence: Evidence, role: number): Missing[] {
  const here = new Set(present(evidence, role));
  const found = new Map<string, Missing>();
  for (const { id: by, status } of evidence.members) {
    for (const told of status?.losses ?? []) {
      // By the clock of who saw it.
      const loss = { ...told, agoMs: (status?.nowMs ?? evidence.now) - told.atMs };
      const name = nameOf(loss.tenant, loss.id);
      if (loss.role !== role || here.has(name)) continue;
      const known = found.get(name);
      const [first, second] = known && known.reason !== '' ? [known, loss] : [loss, known ?? loss];
      found.set(name, {
        ...second,
        ...first,
        remote: first.remote || second.remote,
        left: first.left || second.left,
        by: [...(known?.by ?? []), by],
      });
    }
  }
  return [...found.values()];
}

/** Those of them that went without a word. */
export function lost(evidence: Evidence, role: number): Missing[] {
  return missing(evidence, role).filter(({ left }) => !left);
}

/** The names of those of a role that the plane has. */
function present({ members, hubs, sessions }: Evidence, role: number): string[] {
  if (role === Role.ROLE_HUB) {
    // Gateways on a busy machine may have lost one that answers.
    const answering = members.filter(({ roles, status }) => roles.includes('hub') && status).map(({ id }) => id);
    return [...hubs.map(({ hubId }) => hubId), ...answering].map((id) => nameOf('', id));
  }
  if (role === Role.ROLE_AGENT) return sessions.map(({ tenant, agentId }) => nameOf(tenant, agentId));
  return members.filter(({ roles }) => roles.includes('gateway')).map(({ id }) => nameOf('', id));
}

function nameOf(tenant: string, id: string): string {
  return JSON.stringify([tenant, id]);
}

/** A peer that is refused again and again cannot do its part, however healthy the others are. */
export function ofRefusals(evidence: Evidence, report: Report): Result[] {
  const gone = missing(evidence, Role.ROLE_AGENT);
  const all = evidence.members.flatMap(({ id, status }) =>
    (status?.refusals ?? []).map((refusal) => {
      return { ...refusal, id, agoMs: (status?.nowMs ?? evidence.now) - refusal.lastMs };
    }),
  );
  // A peer tries one member after the other, from a new port each time.
  const groups = Map.groupBy(all, ({ where, remote, reason }) => JSON.stringify([where, hostOf(remote), reason]));
  return [...groups.values()].flatMap((own) => {
    const [refusal] = own.toSorted((a, b) => a.agoMs - b.agoMs);
    if (!refusal) return [];
    const members = [...new Set(own.map(({ id }) => id))];
    const about = `${members.join(', ')}, port for ${refusal.where}`;
    const told = refusalText({ ...refusal, count: own.reduce((sum, { count }) => sum + count, 0) });
    const old = refusal.agoMs > FINDINGS.oldMs;
    const agents = refusal.where.startsWith('agents');
    const suspects = agents ? suspectsOf(gone, refusal) : [];
    const names = suspects
      .slice(0, FINDINGS.suspects)
      .map(({ tenant, id: agent, agoMs }) => `${agentName(tenant, agent)} (for ${age(agoMs)})`);
    const more = suspects.length > FINDINGS.suspects ? ` and ${suspects.length - FINDINGS.suspects} more` : '';
    const who = names.length > 0 ? `; agents that have no session any more: ${names.join(', ')}${more}` : '';
    const clock = OF_TIME.test(refusal.reason) ? clockTodo(evidence, members) : undefined;
    const fix =
      agents && refusal.distrusted
        ? "its --ca-cert must hold the CA of the hub's --cluster-cert, and its clock be right: isthmus status --address with its admin port shows its side"
        : 'run isthmus status --address with its admin port to see its side';
    const todo = clock ?? `if the peer is yours, ${fix}; if not, rejecting it is right`;
    return [{ ...report.warn(about, `refused ${told}${who}`, todo), old }];
  });
}

/** Lost agents that may be the one: from the same machine, or from an unknown one. */
function suspectsOf(gone: readonly Missing[], { remote }: Refusal): readonly Missing[] {
  return gone.filter((loss) => loss.remote === '' || hostOf(loss.remote) === hostOf(remote));
}

/** `10.0.0.7:40312, 14 times, the last 3 s ago: certificate has expired` */
function refusalText({ remote, reason, count, agoMs }: Refusal & { readonly agoMs: number }): string {
  const often = count === 1 ? '' : `${count.toLocaleString('en')} times, the last `;
  return `${remote || 'an unknown address'}, ${often}${age(agoMs)} ago: ${reason}`;
}

function hostOf(address: string): string {
  return address.replace(/:\d+$/, '');
}

import {
  agentName,
  type Evidence,
  findingsIn,
  judge,
  middleOf,
  servedBy,
  sessionsIn,
  type Witness,
} from '@isthmus/findings';
import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Semaphore } from '@isthmus/runtime';
import { ISTHMUS } from '../defaults.ts';
import { ago, isoTime, renamed } from '../output.ts';
import { type Answer, type Answers, byName, type Member } from './member.ts';
import type { Plane } from './plane.ts';

/** A session, with what the clock says by which its times are. */
type TimedSession = adminApi.Session & { readonly nowMs: number };

export function sessionViews(sessions: readonly TimedSession[]): SessionView[] {
  return sessions.map(sessionView).sort(byAgent);
}

/** Returns each session of the plane once. */
export async function sessionsOf(
  plane: Plane,
  tenant: string,
): Promise<{ sessions: TimedSession[] } & Answers<unknown>> {
  const { answers, unanswered } = await plane.ask('listSessions', { tenant }, { roles: ['hub', 'gateway'] });
  const told = answers.map(({ member: { id }, value: { sessions, nowMs } }) => {
    return { id, sessions: sessions.map((session) => ({ ...session, nowMs })) };
  });
  return { sessions: sessionsIn(told), answers, unanswered };
}

const PROTOCOLS = namesOf(adminApi.LinkProtocol, 'LINK_PROTOCOL');

export type SessionView = ReturnType<typeof sessionView>;

function sessionView({ nowMs: now, ...told }: TimedSession) {
  const { sinceMs, drainingSinceMs, identifiers, quarantined, quarantineReason, suspected } = told;
  const { sessionId, tenant, agentId, hubId, protocol, remote, draining, tunnels } = told;
  return {
    ...renamed({ sessionId, tenant, agentId, hubId, remote, draining, tunnels }),
    /** `link` for our agent, `packets` for Konnectivity's; empty if only gateways report the session. */
    protocol: PROTOCOLS[protocol] ?? '',
    since: isoTime(sinceMs),
    ageMs: Math.max(0, now - sinceMs),
    reaches: servedBy(identifiers),
    /** For how long its agent has been draining. Not known if its hub did not answer. */
    ...(drainingSinceMs > 0 && { drainingMs: Math.max(0, now - drainingSinceMs) }),
    /** Set if it, or its hub, is silent. */
    ...(suspected && { suspected }),
    /** Why its agent is in quarantine. */
    ...(quarantined && { quarantined: quarantineReason }),
  };
}

function byAgent(a: SessionView, b: SessionView): number {
  return a.tenant.localeCompare(b.tenant) || byName(a.agent, b.agent) || byName(a.hub, b.hub);
}

/** What the members of a plane answered, and what the rules of `isthmus check` make of it. */
export type Asked = Awaited<ReturnType<typeof askPlane>>;

const NOTHING: Answers<never> = { answers: [], unanswered: [] };

/** Asks the members of a plane for all that the rules look at. @param configs whether to ask for their flags, too */
export async function askPlane(plane: Plane, tenant: string, configs: boolean) {
  const began = Date.now();
  const [statuses, lists, flags, tenants, { sessions, ...heard }] = await Promise.all([
    plane.ask('getStatus', {}),
    plane.ask('listMembers', {}),
    configs ? plane.ask('getConfig', {}) : NOTHING,
    plane.ask('listTenants', { tenant }, { roles: ['gateway', 'hub'] }),
    sessionsOf(plane, tenant),
  ]);
  const answerOf = <T>({ answers }: Answers<T>, { id }: Member) => answers.find(({ member }) => member.id === id);
  const of = <T>(all: Answers<T>, member: Member) => answerOf(all, member)?.value;
  const witness = (member: Member): Witness => {
    const { value: status, at = began } = answerOf(statuses, member) ?? {};
    const aheadMs = status && status.nowMs - (began + at) / 2;
    const silent = statuses.unanswered.find((each) => each.member === member.id)?.reason;
    const said = { status, list: of(lists, member), tenants: of(tenants, member), config: of(flags, member) };
    return { ...member, aheadMs, silent, version: status?.version ?? '', ...said };
  };
  const nobody = statuses.unanswered.filter(({ member }) => !plane.members.some(({ id }) => id === member));
  const members: Witness[] = [
    ...plane.members.map(witness),
    ...nobody.map(({ member: id, address, reason: silent }) => ({ id, address, silent, roles: [], version: '' })),
  ];
  const hubs = new Map(lists.answers.flatMap(({ value }) => value.hubs.map((hub) => [hub.hubId, hub])));
  const clocks = [{ of: 'this machine', aheadMs: 0 }];
  // Most members are right, and this machine may not be.
  const now = Date.now() + middleOf(members.flatMap(({ aheadMs }) => aheadMs ?? []));
  const untold = heard.answers.length === 0 && heard.unanswered.length > 0 && { sessionsUntold: true };
  const evidence = { members, hubs: [...hubs.values()], sessions, ...untold, clocks, now } satisfies Evidence;
  return { statuses, lists, configs: flags, evidence, tookMs: Date.now() - began };
}

/**
 * Adds the clocks of agents, and of members that could be asked only at their own addresses.
 * @param tookMs how long members took to answer: one that hangs has used its time
 */
export async function withClocks(
  plane: Plane,
  evidence: Evidence,
  timeoutMs: number,
  tookMs: number,
): Promise<Evidence> {
  const ahead = async (ask: Promise<number | undefined>) => {
    const began = Date.now();
    const said = await ask;
    return said && said - (began + Date.now()) / 2;
  };
  const members = evidence.members.map(async (member) => {
    if (member.status || member.address === '' || tookMs >= timeoutMs) return member;
    return { ...member, aheadMs: await ahead(plane.clockAt(member.address, timeoutMs - tookMs)) };
  });
  const able = evidence.sessions.filter((session) => !session.suspected && isAsked(session));
  const agents = [...new Map(able.map((each) => [agentName(each.tenant, each.agentId), each]))];
  // All have one time-out together: it is not known of a few that hang, and those that wait for their turns, what their clocks say.
  const end = performance.now() + timeoutMs;
  const clocks = fewAtOnce(sample(agents, ISTHMUS.checkClocks), async ([name, { tenant, agentId }]) => {
    const status = plane.askAgent(tenant, agentId, 'getStatus', Math.max(1, Math.ceil(end - performance.now())));
    return { of: `agent ${name}`, claimed: true as const, aheadMs: await ahead(status.then((said) => said?.nowMs)) };
  });
  const known = (await clocks).flatMap(({ aheadMs, ...told }) => (aheadMs === undefined ? [] : { ...told, aheadMs }));
  return { ...evidence, members: await Promise.all(members), clocks: [...evidence.clocks, ...known] };
}

/** Whether an agent can be asked through the hub of this session: the hub answers, and it is no Go agent. */
function isAsked({ protocol }: Pick<adminApi.Session, 'protocol'>): boolean {
  return protocol === adminApi.LinkProtocol.LINK_PROTOCOL_LINK;
}

/** Chooses so many by chance. */
function sample<T>(all: readonly T[], count: number): T[] {
  const places = all.map((each) => [Math.random(), each] as const);
  return places
    .sort(([a], [b]) => a - b)
    .slice(0, count)
    .map(([, each]) => each);
}

/** Checks a few at once. */
export function fewAtOnce<T, R>(all: readonly T[], act: (each: T, index: number) => Promise<R>): Promise<R[]> {
  const turns = new Semaphore(ISTHMUS.checkDialsAtOnce);
  return Promise.all(all.map((each, index) => turns.take(() => act(each, index))));
}

/** Returns why agents may be away, as the plane's members tell it: whom hubs refused, and which agents went. */
export async function agentsAway(plane: Plane, tenant: string): Promise<string[]> {
  const { evidence } = await askPlane(plane, tenant, false);
  return findingsIn(judge(evidence, ['refusals', 'missing']))
    .filter(({ check, about }) => check === 'missing' || about.endsWith('port for agents'))
    .slice(0, ISTHMUS.warningsShown)
    .map(({ about, detail }) => `${about}: ${detail}`);
}

/** Returns the last different warnings by member id. The reason for a problem is often only there. */
export async function warningsOf(
  plane: Plane,
  told: readonly Answer<adminApi.GetStatusResponse>[],
): Promise<Map<string, string[]>> {
  const now = new Map(told.map(({ member, value }) => [member, value.nowMs]));
  const request = { level: 'warn', limit: ISTHMUS.warningsRead };
  const { answers } = await plane.ask('recentLogs', request, { members: [...now.keys()] });
  return new Map(answers.map(({ member, value }) => [member.id, lastDifferent(value.lines, now.get(member) ?? 0)]));
}

/** Returns the last different lines, each with its age. */
export function lastDifferent(lines: readonly string[], now: number): string[] {
  const found = new Map<string, string>();
  for (const line of [...lines].reverse()) {
    if (found.size >= ISTHMUS.warningsShown) break;
    const { text, atMs } = readable(line) ?? {};
    if (text === undefined || atMs === undefined || found.has(text)) continue;
    found.set(text, Number.isNaN(atMs) ? text : ago(text, atMs, now));
  }
  return [...found.values()].reverse();
}

/** Fields that differ from line to line, or are shown elsewhere. */
const LEFT_OUT = ['level', 'time', 'name', 'msg', 'pid', 'hostname', 'dial', 'trace_id', 'span_id', 'ms'];

/** Formats a log line as `message: field=value, ...`, and says when it was written. Returns undefined if it is no log line. */
function readable(line: string): { readonly text: string; readonly atMs: number } | undefined {
  try {
    const fields = JSON.parse(line) as Record<string, unknown>;
    const told = Object.entries(fields)
      .filter(([name]) => !LEFT_OUT.includes(name))
      .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
    const message = String(fields.msg ?? '');
    const text = told.length > 0 ? `${message}: ${told.join(', ')}` : message;
    return { text, atMs: Date.parse(String(fields.time)) };
  } catch {
    return undefined;
  }
}

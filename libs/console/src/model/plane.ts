import { cutOff, type Loss, reachedBy, sessionsIn, stateOfSessions, type Witness } from '@isthmus/findings';
import { Admission } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { askAll, askOne, type Hub, type Quarantined, reasonOf, type Session, type Told } from '../rpc.ts';

/** A gateway or hub, and what it says of itself. */
export interface Seen extends Witness {
  readonly zone: string;
  /** It serves this page. */
  readonly self: boolean;
}

/** What the page knows of the plane. */
export interface Plane {
  readonly members: readonly Seen[];
  readonly hubs: readonly Hub[];
  readonly sessions: readonly Session[];
  readonly quarantined: readonly Quarantined[];
  /** Why the last look at the page's own member failed. What is shown is then from before. */
  readonly fault: string;
  /** When it was last looked at, in milliseconds since the epoch; 0 before. */
  readonly at: number;
}

export const NOTHING: Plane = {
  members: [],
  hubs: [],
  sessions: [],
  quarantined: [],
  fault: '',
  at: 0,
};

/**
 * `silent`: the hub does not answer this page, and gateways have links to it. `unlinked`: it answers, and gateways have lost it. Both happen on
 * busy machines and behind firewalls. `drained`: it drains, and has ended its links. `hung`: neither this page nor gateways reach the member. `lost`: the plane has forgotten it.
 */
export type Health = 'ok' | 'unready' | 'draining' | 'drained' | 'silent' | 'unlinked' | 'hung' | 'lost';

/** The gateways that answer, the page's own first. */
export function gatewaysOf({ members }: Pick<Plane, 'members'>): Seen[] {
  const asked = members.filter(({ roles, status }) => roles.includes('gateway') && status !== undefined);
  return asked.sort((a, b) => Number(b.self) - Number(a.self));
}

/** The gateways that answer; without any, its own member. A tunnel and a dial are of one gateway, which knows the caller. */
export function frontsOf(plane: Plane): Seen[] {
  const gateways = gatewaysOf(plane);
  const self = selfOf(plane);
  return gateways.length > 0 || self === undefined ? gateways : [self];
}

/** The member that serves this page. */
export function selfOf({ members }: Plane): Seen | undefined {
  return members.find(({ self }) => self);
}

/** Returns the address of a view on this page, and of what is chosen in it. */
export function hrefOf(view: string, ...chosen: readonly string[]): string {
  const path = [view, ...chosen].map((part) => encodeURIComponent(part.replaceAll(/\p{Cs}/gu, '')));
  return `#/${path.slice(0, path.findLastIndex(Boolean) + 1).join('/')}`;
}

/** The address for `isthmus --address`, from the place of this page. */
export function ownAddress(): string {
  return location.host;
}

/** Whether it says so itself. */
function drains(status: Seen['status']): boolean {
  return status?.admission === Admission.ADMISSION_LEAVING || status?.admission === Admission.ADMISSION_DRAINING;
}

/** Says how a member is, by itself and by the gateways' links to it. */
export function healthOf(id: string, { members, hubs }: Plane): Health {
  const status = members.find((each) => each.id === id)?.status;
  const reached = status !== undefined || reachedBy(id, members).length > 0;
  if (hubs.find(({ hubId }) => hubId === id)?.draining || drains(status)) return reached ? 'draining' : 'drained';
  if (cutOff(id, members).length > 0) return status ? 'unlinked' : 'hung';
  if (!status) return reached ? 'silent' : 'hung';
  return status.ready ? 'ok' : 'unready';
}

/**
 * Looks at the plane through the page's own member. Keeps what it cannot read now.
 * @param self the id of that member
 * @param all also the lists that are long in a large plane
 */
export async function lookAt(before: Plane, self: string, all: boolean): Promise<Plane> {
  const { othersMs } = CONSOLE;
  const began = Date.now();
  try {
    const [statuses, lists, limits, quarantined] = await Promise.all([
      askAll(undefined, 'GetStatus', {}, othersMs),
      askAll(undefined, 'ListMembers', {}, othersMs),
      all ? askAll(undefined, 'ListTenants', {}, othersMs) : undefined,
      askOne('', 'ListQuarantined', {}, othersMs),
    ]);
    const members = statuses.map(({ member, answer: status, error, at }): Seen => {
      const { id } = member;
      const last = before.members.find((each) => each.id === id);
      const tenants = limits ? answerOf(limits, id) : last?.tenants;
      const aheadMs = status && status.nowMs - (began + at) / 2;
      const said = { status, list: answerOf(lists, id), tenants, aheadMs, silent: error?.message };
      return { ...member, version: status?.version ?? member.version, self: id === self, ...said };
    });
    members.sort((a, b) => compare(a.id, b.id));
    const hubs = answerOf(lists, self)?.hubs ?? before.hubs;
    const sessions = all ? await sessionsOf(members, hubs) : before.sessions;
    return { members, hubs, quarantined: quarantined.agents, sessions, fault: '', at: Date.now() };
  } catch (error) {
    return { ...before, fault: reasonOf(error) };
  }
}

function answerOf<T>(told: readonly Told<T>[], id: string): T | undefined {
  return told.find(({ member }) => member.id === id)?.answer;
}

/** Asks hubs; gateways too if a hub does not answer: those that reach it know its sessions, and one of them may not. */
async function sessionsOf(members: readonly Seen[], hubs: readonly Hub[]): Promise<Session[]> {
  const answering = members.filter(({ status }) => status !== undefined);
  const said = answering.filter(({ id }) => hubs.some(({ hubId }) => hubId === id));
  const asked = [...said, ...(said.length < hubs.length ? gatewaysOf({ members }) : [])];
  const ids = new Set((asked.length > 0 ? asked : answering).map(({ id }) => id));
  const told = await askAll([...ids], 'ListSessions', {});
  return sessionsIn(told.flatMap(({ member: { id }, answer }) => (answer ? [{ id, sessions: answer.sessions }] : [])));
}

/**
 * `thin`: it has sessions with one hub only, though there are more. Its tunnels end with that hub. `suspect`: it, or its hub, is silent just
 * now. `lost`: it went away without a word in the last hour.
 */
type AgentState = 'ok' | 'thin' | 'draining' | 'quarantined' | 'suspect' | 'lost';

/** Worst last. */
export const STATES: readonly AgentState[] = ['ok', 'thin', 'draining', 'quarantined', 'suspect', 'lost'];

export interface Agent {
  readonly tenant: string;
  readonly id: string;
  /** None if it is lost. */
  readonly sessions: readonly Session[];
  readonly loss?: Loss;
  /** Of its hubs, in order: `a`, or `a + b`. A hub without a zone gives none. */
  readonly zones: string;
  readonly state: AgentState;
  readonly tunnels: number;
}

export interface Group {
  readonly tenant: string;
  readonly zones: string;
  readonly agents: readonly Agent[];
  readonly counts: Readonly<Record<AgentState, number>>;
}

/** @param lost agents that went away without a word */
export function agentsOf(sessions: readonly Session[], hubs: readonly Hub[], lost: readonly Loss[] = []): Agent[] {
  const zoneOf = new Map(hubs.map(({ hubId, zone }) => [hubId, zone]));
  const taking = hubs.filter(({ draining }) => !draining).length;
  const byAgent = Map.groupBy(sessions, ({ tenant, agentId }) => `${tenant}\0${agentId}`);
  const here = [...byAgent.values()].map((own) => {
    const [{ tenant, agentId: id }] = own as [Session];
    const zones = [...new Set(own.map(({ hubId }) => zoneOf.get(hubId) ?? '').filter((zone) => zone !== ''))].sort();
    const tunnels = own.reduce((sum, session) => sum + session.tunnels, 0);
    return { tenant, id, sessions: own, zones: zones.join(' + '), state: stateOf(own, taking), tunnels };
  });
  const gone = lost.map((loss): Agent => {
    const { tenant, id, hubId } = loss;
    return { tenant, id, sessions: [], loss, zones: zoneOf.get(hubId) ?? '', state: 'lost', tunnels: 0 };
  });
  return [...here, ...gone];
}

function stateOf(sessions: readonly Session[], hubs: number): AgentState {
  const state = stateOfSessions(sessions);
  if (state !== 'ready') return state;
  return hubs > 1 && new Set(sessions.map(({ hubId }) => hubId)).size === 1 ? 'thin' : 'ok';
}

/** Groups agents by tenant and zones. Groups with most that is not ok come first, then the largest; in a group likewise. */
export function groupsOf(agents: readonly Agent[]): Group[] {
  const byPlace = Map.groupBy(agents, ({ tenant, zones }) => `${tenant}\0${zones}`);
  const groups = [...byPlace.values()].map((own) => {
    const [{ tenant, zones }] = own as [Agent];
    const counts = { ok: 0, thin: 0, draining: 0, quarantined: 0, suspect: 0, lost: 0 };
    for (const { state } of own) counts[state]++;
    return { tenant, zones, agents: own.sort(worstFirst), counts };
  });
  const notOk = ({ agents: { length }, counts }: Group) => length - counts.ok;
  return groups.sort((a, b) => notOk(b) - notOk(a) || b.agents.length - a.agents.length || compare(a.tenant, b.tenant));
}

function worstFirst(a: Agent, b: Agent): number {
  return STATES.indexOf(b.state) - STATES.indexOf(a.state) || compare(a.id, b.id);
}

/** By UTF-16 units: `localeCompare` takes a second for 10,000 names. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A tenant, or an object or file that should be one. */
export interface TenantRow {
  /** Empty if none of it is in force. */
  readonly tenant: string;
  /** What it is made of: `acme.yaml`, or `Cluster acme/prod`. */
  readonly from: string;
  readonly agents: number;
  /** What is wrong with it, as members say it; empty if nothing is. */
  readonly wrong: string;
}

/** Puts together what members say of tenants. What is wrong comes first. Empty for a plane without tenants. */
export function tenantsOf({ members }: Pick<Plane, 'members'>): TenantRow[] {
  const answers = members.flatMap(({ tenants }) => (tenants?.configured ? [tenants] : []));
  const rows = new Map<string, TenantRow>();
  for (const { name: tenant, file, source, agents } of answers.flatMap((answer) => answer.tenants)) {
    const known = rows.get(tenant);
    rows.set(tenant, { tenant, from: source || file, agents: Math.max(agents, known?.agents ?? 0), wrong: '' });
  }
  const inForce = new Map([...rows.values()].map(({ from, tenant }) => [from, tenant]));
  for (const { file: from, message, kept } of answers.flatMap(({ problems }) => problems)) {
    const name = kept || inForce.get(from) || from;
    const row = rows.get(name) ?? { tenant: kept, from, agents: 0, wrong: '' };
    const wrong = [...new Set([...row.wrong.split('; '), message])].filter((each) => each !== '').join('; ');
    rows.set(name, { ...row, wrong });
  }
  const isWell = ({ wrong }: TenantRow) => Number(wrong === '');
  return [...rows.values()].sort((a, b) => isWell(a) - isWell(b) || compare(a.tenant || a.from, b.tenant || b.from));
}

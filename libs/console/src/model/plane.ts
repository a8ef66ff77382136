import { cutOff, type Loss, reachedBy, type Witness } from '@isthmus/findings';
import { Admission, namesOf, Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import {
  type Hub,
  type Member,
  type Members,
  type Quarantined,
  RpcError,
  read,
  reasonOf,
  type Session,
  type Status,
  type Tenants,
} from '../rpc.ts';

/** A gateway or hub, and what it says of itself. */
export interface Seen extends Witness {
  readonly zone: string;
  /** Where its own console may be: empty for the member of this page, undefined where no browser here reaches it. */
  readonly origin: string | undefined;
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
 * busy machines and behind firewalls. `hung`: neither this page nor gateways reach the member. `lost`: the plane has forgotten it.
 */
export type Health = 'ok' | 'unready' | 'draining' | 'silent' | 'unlinked' | 'hung' | 'unseen' | 'lost';

const ROLE_NAMES = namesOf(Role, 'ROLE');

function roleNames(roles: readonly number[]): string[] {
  return roles.map((role) => ROLE_NAMES[role] ?? '?');
}

/** Returns where this page can read a member, if it can: loopback addresses are those of each machine. */
export function originOf(
  member: Member,
  own: Member | undefined,
  page: { readonly protocol: string },
): string | undefined {
  if (member.self) return '';
  const loopback = /^(127\.|localhost:|\[::1\])/.test(member.adminAddress);
  const near = loopback ? member.host === own?.host : page.protocol === 'https:';
  const url = `${page.protocol}//${member.adminAddress}`;
  return near && URL.canParse(url) ? new URL(url).origin : undefined;
}

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

/** What one member answered, or why it did not. */
export interface Told<T> {
  readonly member: Seen;
  readonly answer?: T;
  readonly fault?: string;
}

/** Asks members at once. @throws what the only one threw */
export async function askAll<T>(members: readonly Seen[], ask: (member: Seen) => Promise<T>): Promise<Told<T>[]> {
  const [only] = members;
  if (only && members.length === 1) return [{ member: only, answer: await ask(only) }];
  return Promise.all(
    members.map((member) =>
      ask(member).then(
        (answer) => ({ member, answer }),
        (fault: unknown) => ({ member, fault: reasonOf(fault) }),
      ),
    ),
  );
}

/** The member that serves this page. */
export function selfOf({ members }: Plane): Seen | undefined {
  return members.find(({ self }) => self);
}

/** Where another member's console is, at the same view. */
export function consoleOf({ origin, self }: Seen, view: string): string | undefined {
  return self || origin === undefined ? undefined : `${origin}/console/#/${view}`;
}

/** Returns the address of a view on this page, and of what is chosen in it. */
export function hrefOf(view: string, ...chosen: readonly string[]): string {
  const path = [view, ...chosen].map((part) => encodeURIComponent(part.replaceAll(/\p{Cs}/gu, '')));
  return `#/${path.join('/').replace(/\/+$/, '')}`;
}

/** The address for `isthmus --address`, from the place of this page. */
export function ownAddress(): string {
  return location.host;
}

/** Whether it says so itself: a hub that has drained is in the registry no more. */
function drains({ status }: Seen): boolean {
  return status?.admission === Admission.ADMISSION_LEAVING || status?.admission === Admission.ADMISSION_DRAINING;
}

/**
 * Says how a hub of the directory is. One that the list of members lacks, as all are while the registry takes no writes, is not asked: only
 * the links tell of it.
 */
export function healthOfHub({ hubId: id, zone }: Hub, plane: Plane): Health {
  const member = plane.members.find((each) => each.id === id);
  const unlisted = { id, roles: ['hub'], zone, version: '', address: '', origin: undefined, self: false, unseen: true };
  return healthOf(member ?? unlisted, plane);
}

/** Says how a member is, by itself and by the gateways' links to it. */
export function healthOf(member: Seen, plane: Plane): Health {
  const hub = plane.hubs.find(({ hubId }) => hubId === member.id);
  if (hub?.draining || drains(member)) return 'draining';
  if (cutOff(member.id, plane.members).length > 0) return member.status ? 'unlinked' : 'hung';
  if (!member.status && member.unseen) return 'unseen';
  if (!member.status) return reachedBy(member.id, plane.members).length > 0 ? 'silent' : 'hung';
  return member.status.ready ? 'ok' : 'unready';
}

/**
 * Looks at the plane: the page's own member first, then those that it names. Keeps what it cannot read now.
 * @param all also the lists that are long in a large plane
 */
export async function lookAt(before: Plane, all: boolean): Promise<Plane> {
  try {
    const [status, list, quarantined, tenants] = await Promise.all([
      // One that hangs must not be shown as live for longer than others are.
      read('', 'GetStatus', {}, CONSOLE.othersMs),
      read('', 'ListMembers', {}),
      read('', 'ListQuarantined', {}).catch(unlessRefused({ agents: [] })),
      read('', 'ListTenants', {}).catch(unlessRefused(undefined)),
    ]);
    const known = { status, list, tenants, all };
    const members = await Promise.all(
      namedBy(list, status).map((member) =>
        seen(
          member,
          known,
          before.members.find(({ id }) => id === member.memberId),
        ),
      ),
    );
    const { sessions } = before;
    const plane = { members, hubs: list.hubs, quarantined: quarantined.agents, sessions, fault: '', at: Date.now() };
    return all ? { ...plane, sessions: await sessionsOf(plane) } : plane;
  } catch (error) {
    return { ...before, fault: reasonOf(error) };
  }
}

/** A member of an earlier version does not know every method. */
function unlessRefused<T>(instead: T): (error: unknown) => T {
  return (error) => {
    if (error instanceof RpcError) return instead;
    throw error;
  };
}

/** A program without a plane, or whose registry has never answered, names itself. */
function namedBy({ members }: Members, status: Status): Member[] {
  if (members.some(({ self }) => self)) return [...members];
  const own = {
    memberId: status.memberId,
    roles: status.roles,
    adminAddress: location.host,
    version: status.version,
    zone: status.zone,
    sinceMs: status.startedMs,
    self: true,
    host: '',
  };
  return [own, ...members];
}

interface Known {
  /** Of the page's own member. */
  readonly status: Status;
  readonly list: Members;
  readonly tenants: Tenants | undefined;
  readonly all: boolean;
}

async function seen(member: Member, known: Known, before: Seen | undefined): Promise<Seen> {
  const { memberId: id, adminAddress: address, roles, zone, version, self } = member;
  const { status, list, tenants, all } = known;
  const origin = originOf(
    member,
    list.members.find((each) => each.self),
    location,
  );
  const about = { id, roles: roleNames(roles), zone, version, address, origin, self };
  if (self) return { ...about, status, list, tenants, aheadMs: status.nowMs - Date.now() };
  try {
    const asked = Date.now();
    const [its, links, limits] = await Promise.all([
      read(id, 'GetStatus', {}, CONSOLE.othersMs),
      read(id, 'ListMembers', {}, CONSOLE.othersMs),
      all ? read(id, 'ListTenants', {}, CONSOLE.othersMs).catch(unlessRefused(undefined)) : before?.tenants,
    ]);
    return { ...about, status: its, list: links, tenants: limits, aheadMs: its.nowMs - (asked + Date.now()) / 2 };
  } catch (error) {
    return { ...about, silent: reasonOf(error) };
  }
}

/** A gateway knows the sessions of all hubs; a hub without one knows its own. */
async function sessionsOf({ members }: Pick<Plane, 'members'>): Promise<Session[]> {
  const [from] = gatewaysOf({ members });
  if (from) return (await read(from.id, 'ListSessions', {})).sessions;
  const hubs = members.filter(({ status }) => status !== undefined);
  const lists = await Promise.all(hubs.map(({ id }) => read(id, 'ListSessions', {})));
  const sessions = lists.flatMap((list) => list.sessions);
  return [...new Map(sessions.map((session) => [session.sessionId, session])).values()];
}

/**
 * `thin`: it has sessions with one hub only, though there are more. Its tunnels end with that hub. `lost`: it went away without a word in the
 * last hour.
 */
type AgentState = 'ok' | 'thin' | 'draining' | 'quarantined' | 'lost';

/** Worst last. */
export const STATES: readonly AgentState[] = ['ok', 'thin', 'draining', 'quarantined', 'lost'];

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
  const here = grouped(sessions, ({ tenant, agentId }) => `${tenant}\0${agentId}`).map((own) => {
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
  if (sessions.some(({ quarantined }) => quarantined)) return 'quarantined';
  if (sessions.every(({ draining }) => draining)) return 'draining';
  return hubs > 1 && new Set(sessions.map(({ hubId }) => hubId)).size === 1 ? 'thin' : 'ok';
}

/** Groups agents by tenant and zones. Groups with most that is not ok come first, then the largest; in a group likewise. */
export function groupsOf(agents: readonly Agent[]): Group[] {
  const groups = grouped(agents, ({ tenant, zones }) => `${tenant}\0${zones}`).map((own) => {
    const [{ tenant, zones }] = own as [Agent];
    const counts = { ok: 0, thin: 0, draining: 0, quarantined: 0, lost: 0 };
    for (const { state } of own) counts[state]++;
    return { tenant, zones, agents: own.sort(worstFirst), counts };
  });
  const notOk = ({ agents: { length }, counts }: Group) => length - counts.ok;
  return groups.sort((a, b) => notOk(b) - notOk(a) || b.agents.length - a.agents.length || compare(a.tenant, b.tenant));
}

/** Those with the same key together, in the order in which they came. */
export function grouped<T>(all: readonly T[], keyOf: (one: T) => string): T[][] {
  const found = new Map<string, T[]>();
  for (const one of all) {
    const key = keyOf(one);
    const own = found.get(key);
    if (own) own.push(one);
    else found.set(key, [one]);
  }
  return [...found.values()];
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
  for (const { file: from, message, kept } of answers.flatMap(({ problems }) => problems)) {
    const row = rows.get(kept || from) ?? { tenant: kept, from, agents: 0, wrong: '' };
    const wrong = [...new Set([...row.wrong.split('; '), message])].filter((each) => each !== '').join('; ');
    rows.set(kept || from, { ...row, wrong });
  }
  const isWell = ({ wrong }: TenantRow) => Number(wrong === '');
  return [...rows.values()].sort((a, b) => isWell(a) - isWell(b) || compare(a.tenant || a.from, b.tenant || b.from));
}

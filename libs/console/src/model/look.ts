import { RpcError, read, reasonOf } from '../rpc/client.ts';
import type { Member, Members, Session, Status, Tenants } from '../rpc/messages.ts';
import { originOf, type Plane, roleNames, type Seen } from './plane.ts';

/** How long another member may take: one that hangs must not hold up the picture that shows it. In milliseconds. */
const OTHERS_MS = 2500;

/**
 * Looks at the plane: the page's own member first, then those that it names. Keeps what it cannot read now.
 * @param all also the lists that are long in a large plane
 */
export async function lookAt(before: Plane, allowed: readonly string[], all: boolean): Promise<Plane> {
  try {
    const [status, list, quarantined, tenants] = await Promise.all([
      read('', 'GetStatus', {}),
      read('', 'ListMembers', {}),
      read('', 'ListQuarantined', {}).catch(unlessRefused({ agents: [] })),
      read('', 'ListTenants', {}).catch(unlessRefused(undefined)),
    ]);
    const known = { status, list, tenants, allowed, all };
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
  readonly allowed: readonly string[];
  readonly all: boolean;
}

async function seen(member: Member, known: Known, before: Seen | undefined): Promise<Seen> {
  const { memberId: id, adminAddress: address, roles, zone, version, self } = member;
  const { status, list, tenants, allowed, all } = known;
  const origin = originOf(
    member,
    list.members.find((each) => each.self),
    location,
  );
  const about = { id, roles: roleNames(roles), zone, version, address, origin, self };
  if (self) return { ...about, status, list, tenants, aheadMs: status.nowMs - Date.now() };
  if (origin === undefined)
    return { ...about, unseen: true, silent: `only reachable on ${member.host}, or without TLS` };
  if (!allowed.includes(origin))
    return { ...about, origin: undefined, unseen: true, silent: 'joined after this page was loaded: reload it' };
  try {
    const asked = Date.now();
    const [its, links, limits] = await Promise.all([
      read(origin, 'GetStatus', {}, OTHERS_MS),
      read(origin, 'ListMembers', {}, OTHERS_MS),
      all ? read(origin, 'ListTenants', {}, OTHERS_MS).catch(unlessRefused(undefined)) : before?.tenants,
    ]);
    return { ...about, status: its, list: links, tenants: limits, aheadMs: its.nowMs - (asked + Date.now()) / 2 };
  } catch (error) {
    return { ...about, silent: reasonOf(error) };
  }
}

/** A gateway knows the sessions of all hubs; a hub without one knows its own. */
async function sessionsOf({ members }: Pick<Plane, 'members'>): Promise<Session[]> {
  const own = members.filter(({ self, roles }) => self && roles.includes('gateway'));
  const gateways = members.filter(({ roles, status }) => roles.includes('gateway') && status !== undefined);
  const [from] = [...own, ...gateways];
  if (from) return (await read(from.origin ?? '', 'ListSessions', {})).sessions;
  const hubs = members.filter(({ status }) => status !== undefined);
  const lists = await Promise.all(hubs.map(({ origin = '' }) => read(origin, 'ListSessions', {})));
  const sessions = lists.flatMap((list) => list.sessions);
  return [...new Map(sessions.map((session) => [session.sessionId, session])).values()];
}

import { hostname } from 'node:os';
import type { HubRecord, Member } from '@isthmus/directory';
import { adminApi, valuesOf } from '@isthmus/proto/admin';
import { isLoopback } from '@isthmus/runtime';
import type { RegistryHealth } from '@isthmus/service';
import { type Hold, inWords, type SessionInfo } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { type Call, PROTOCOLS, ROLES } from './messages.ts';
import type { Identity } from './status.ts';

/** How this process reaches a hub: it is the hub, a link is up or down, or it wants no link. */
export type HubLink = 'own' | 'up' | 'down' | 'none';

const LINKS = valuesOf(adminApi.Hub_Link, 'LINK');

/** A gateway's or hub's view of its plane. */
export interface PlanePart {
  /** Rejects if the registry does not answer. */
  members(): Promise<readonly Member[]>;
  /** Those of the last answer. */
  lastMembers(): readonly Member[];
  hubs(): Iterable<HubRecord>;
  linkTo(hub: HubRecord): HubLink;
  /** The round-trip time of the link to a hub, in milliseconds; undefined if it is not known. */
  rttTo(hubId: string): number | undefined;
  /** Why the last try of a link to a hub failed, and when, in milliseconds since the epoch. Undefined while there is one, and before the first try. */
  failureOf(hubId: string): { readonly error: Error; readonly at: number } | undefined;
  readonly registry: RegistryHealth;
}

/** A server that an agent is connected to. */
export interface ConnectedServer extends Omit<adminApi.Server, 'protocol'> {
  readonly protocol: SessionInfo['protocol'];
}

/** An agent's view of the servers. */
export interface ServersPart {
  connected(): Iterable<ConnectedServer>;
  /** How many servers it wants to be connected to. */
  wanted(): number;
}

export const listMembers: Call<'listMembers'> = async (backend) => {
  const { plane, servers } = backend;
  const members = plane ? await plane.members().catch((error: Error) => error) : [];
  const known = members instanceof Error ? (plane?.lastMembers() ?? []) : members;
  const messages = aliveOf(known, backend.identity.memberId).map((member) => memberMessage(member, backend.identity));
  return {
    members: messages.sort((a, b) => (a.memberId < b.memberId ? -1 : 1)),
    membersError: members instanceof Error ? members.message : '',
    hubs: plane ? hubsOf(backend, plane) : [],
    registry: plane && registryMessage(plane.registry),
    servers: [...(servers?.connected() ?? [])].map((server) => ({
      ...server,
      protocol: PROTOCOLS[server.protocol],
    })),
    serversWanted: servers?.wanted() ?? 0,
    holds: ((await backend.holds?.()) ?? []).map(holdMessage),
    nowMs: Date.now(),
  };
};

/** Leaves out who has died if another already runs in its place: the list of members keeps the dead for a while. @param own the id of this process */
export function aliveOf(members: readonly Member[], own: string): Member[] {
  const inOrder = [...members].sort((a, b) => a.since - b.since);
  const last = new Map(inOrder.map((member) => [placeOf(member), member.memberId]));
  return members.filter((member) => member.memberId === own || last.get(placeOf(member)) === member.memberId);
}

/**
 * A recreated container keeps its address but has another name. A loopback address or a socket is one place on this machine; elsewhere the
 * member's id is the place, because two machines may have one name.
 */
function placeOf({ adminAddress, host, memberId }: Member): string {
  const name = adminAddress.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
  const local = adminAddress.startsWith('unix:') || isLoopback(name);
  return adminAddress === '' || (local && host !== hostname()) ? memberId : adminAddress;
}

function memberMessage({ roles, since, ...member }: Member, { memberId }: Identity): adminApi.Member {
  const self = member.memberId === memberId;
  // A later version may know more of them.
  return { ...member, roles: roles.flatMap((role) => ROLES[role] ?? []), sinceMs: since, self };
}

function holdMessage({ since: sinceMs, tunnels, ...hold }: Hold): adminApi.Hold {
  return { ...hold, sinceMs, tunnels: tunnels.length };
}

function hubsOf(backend: AdminBackend, plane: PlanePart): adminApi.DeepPartial<adminApi.Hub>[] {
  const [first] = backend.identity.roles;
  const sessions = countByHub(backend.sessions());
  const tunnels = countByHub([...backend.tunnels()].filter(({ role }) => role === first));
  return [...plane.hubs()]
    .map((hub) => ({
      ...hub,
      sinceMs: hub.incarnation,
      link: LINKS[plane.linkTo(hub)],
      sessions: sessions.get(hub.hubId) ?? 0,
      tunnels: tunnels.get(hub.hubId) ?? 0,
      rttMs: plane.rttTo(hub.hubId),
      failure: failureMessage(plane.failureOf(hub.hubId)),
    }))
    .sort((a, b) => (a.hubId < b.hubId ? -1 : 1));
}

function failureMessage(failure: ReturnType<PlanePart['failureOf']>): adminApi.LinkFailure | undefined {
  return failure && { text: inWords(failure.error), atMs: failure.at };
}

function countByHub(all: Iterable<{ readonly hubId: string }>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { hubId } of all) counts.set(hubId, (counts.get(hubId) ?? 0) + 1);
  return counts;
}

function registryMessage({ up, synced, detail, lastAnswerAt }: RegistryHealth): adminApi.RegistryState {
  return { up, synced, detail, ageMs: lastAnswerAt === undefined ? undefined : performance.now() - lastAnswerAt };
}

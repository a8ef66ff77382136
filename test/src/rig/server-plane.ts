import type { AddressInfo } from 'node:net';
import {
  balance,
  type Flags,
  holdMember,
  Member,
  newTrust,
  peer,
  type Scope,
  serverMember,
  type Trust,
  times,
  uplinkFlags,
} from '../harness/index.ts';
import { doorOf } from './door.ts';
import { type As, agentOf, carriedBy, ownRedis, QUIET, type Topology } from './split-plane.ts';

export interface ServerPlaneOptions {
  /** More than one server share a Redis. */
  readonly servers: number;
  /** Our agents. Each has sessions to two servers if there are two. */
  readonly agents: number;
  /** Agents that run the published Go modules; each has a session to every server. */
  readonly goAgents?: number;
  /** Flags of the servers, by id or the same for all; agents log at the same level. */
  readonly flags?: Flags | ((id: string) => Flags);
  /** Where servers and our agents run, by id. */
  readonly as?: As;
  /** Whether callers dial one `isthmus hold`, which prefers the first server. */
  readonly held?: boolean;
}

/** All-in-one servers. Each is the door of an API server beside it, or `isthmus hold` is the door of all. */
export interface ServerPlane extends Topology {
  readonly servers: readonly Member[];
  /** Our agents, followed by the Go ones. */
  readonly agents: readonly Member[];
}

export async function serverPlane(scope: Scope, options: ServerPlaneOptions): Promise<ServerPlane> {
  const { servers: count, goAgents = 0, as = () => ({}), flags = {} } = options;
  const flagsOf = (id: string) => (typeof flags === 'function' ? flags(id) : flags);
  const trust = await newTrust(scope);
  const shared = count > 1 ? { 'redis-url': await ownRedis(scope), plane: 'rig' } : {};
  const built = await times(count, (index) => {
    const id = `server-${index}`;
    const all = { 'server-id': id, ...QUIET, ...shared, ...flagsOf(id) };
    return serverMember(scope, trust, id, { flags: all, ...as(id) });
  });
  const [servers, ports] = [built.map(({ member }) => member), built.map(({ agentPort }) => agentPort)];
  const own = await times(options.agents, (index) => {
    const { v = QUIET.v } = flagsOf('server-0');
    return agentOf(scope, trust, index, ports[index % count] as number, { flags: { v }, ...as(`agent-${index}`) });
  });
  const host = '127.0.0.1';
  const balancer = await balance(
    scope,
    { host, port: 0 },
    ports.map((port) => ({ host, port })),
  );
  const { port: behind } = balancer.address() as AddressInfo;
  const go = await times(goAgents, (index) => goAgentOf(scope, trust, index, behind));
  const agents = [...own, ...go];
  await Promise.all([...servers, ...agents].map(({ program }) => program.waitReady()));
  const wanted = own.length * Math.min(2, count) + goAgents * count;
  const ways = built.map((each) => each.ways);
  const hold = options.held ? await holdMember(scope, trust, ways, QUIET) : undefined;
  return {
    servers,
    agents,
    held: hold !== undefined,
    doors: (hold ? [hold.ways] : ways).map(doorOf),
    carried: () => carriedBy(servers),
    missing: async () =>
      (await missingIn(servers, agents, wanted)) ?? (hold && (await linksMissing(hold.member, servers.length))),
  };
}

async function goAgentOf(scope: Scope, trust: Trust, index: number, port: number): Promise<Member> {
  const { healthPort, ...uplink } = await uplinkFlags(trust, port);
  const id = `go-agent-${index}`;
  const flags = { ...uplink, 'agent-id': id, 'sync-forever': true };
  return new Member(scope, { id, runs: [await peer(), 'agent'], flags, healthPort });
}

async function missingIn(
  servers: readonly Member[],
  agents: readonly Member[],
  wanted: number,
): Promise<string | undefined> {
  for (const { id, running } of [...servers, ...agents]) if (!running) return `${id} does not run`;
  for (const server of servers) {
    const known = new Set((await server.sessions()).map(({ agentId, hubId }) => `${agentId} ${hubId}`)).size;
    if (known !== wanted) return `${server.id} knows ${known} of ${wanted} sessions`;
    // Without a link to the other server, every dial would go through this one.
    const reachable = await server.value('isthmus_reachable_sessions');
    if (reachable !== wanted) return `${server.id} can reach ${reachable} of ${wanted} sessions`;
  }
  return undefined;
}

async function linksMissing(hold: Member, wanted: number): Promise<string | undefined> {
  if (!hold.running) return await hold.epitaph();
  const { body } = await hold.program.get('/readyz?verbose');
  return body.includes(`${wanted} can be reached`) ? undefined : `${hold.id} has not all links: ${body}`;
}

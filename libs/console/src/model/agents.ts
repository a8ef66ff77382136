import type { Hub, Session } from '../rpc/messages.ts';

/** `thin`: it has sessions with one hub only, though there are more. Its tunnels end with that hub. */
export type AgentState = 'well' | 'thin' | 'draining' | 'quarantined';

/** Worst last. */
export const STATES: readonly AgentState[] = ['well', 'thin', 'draining', 'quarantined'];

export interface Agent {
  readonly tenant: string;
  readonly id: string;
  readonly sessions: readonly Session[];
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

export function agentsOf(sessions: readonly Session[], hubs: readonly Hub[]): Agent[] {
  const zoneOf = new Map(hubs.map(({ hubId, zone }) => [hubId, zone]));
  const taking = hubs.filter(({ draining }) => !draining).length;
  return grouped(sessions, ({ tenant, agentId }) => `${tenant}\0${agentId}`).map((own) => {
    const [{ tenant, agentId: id }] = own as [Session];
    const zones = [...new Set(own.map(({ hubId }) => zoneOf.get(hubId) ?? '').filter((zone) => zone !== ''))].sort();
    const tunnels = own.reduce((sum, session) => sum + session.tunnels, 0);
    return { tenant, id, sessions: own, zones: zones.join(' + '), state: stateOf(own, taking), tunnels };
  });
}

function stateOf(sessions: readonly Session[], hubs: number): AgentState {
  if (sessions.some(({ quarantined }) => quarantined)) return 'quarantined';
  if (sessions.every(({ draining }) => draining)) return 'draining';
  return hubs > 1 && new Set(sessions.map(({ hubId }) => hubId)).size === 1 ? 'thin' : 'well';
}

/** Groups agents by tenant and zones. Groups with most that is not well come first, then the largest; in a group likewise. */
export function groupsOf(agents: readonly Agent[]): Group[] {
  const groups = grouped(agents, ({ tenant, zones }) => `${tenant}\0${zones}`).map((own) => {
    const [{ tenant, zones }] = own as [Agent];
    const counts = { well: 0, thin: 0, draining: 0, quarantined: 0 };
    for (const { state } of own) counts[state]++;
    return { tenant, zones, agents: own.sort(worstFirst), counts };
  });
  const unwell = ({ agents: { length }, counts }: Group) => length - counts.well;
  return groups.sort(
    (a, b) => unwell(b) - unwell(a) || b.agents.length - a.agents.length || compare(a.tenant, b.tenant),
  );
}

/** Those with the same key together, in the order in which they came. */
function grouped<T>(all: readonly T[], keyOf: (one: T) => string): T[][] {
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

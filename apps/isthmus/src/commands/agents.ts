import { Option } from 'commander';
import { type Call, command } from '../command.ts';
import type { Column } from '../output/fit.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { age, plural } from '../output/units.ts';
import type { Unanswered } from '../plane/member.ts';
import { type SessionView, sessionsOf } from '../plane/sessions.ts';

interface AgentView {
  readonly agent: string;
  readonly tenant: string;
  readonly hubs: readonly string[];
  readonly reaches: readonly string[];
  /** `ready`, `draining` (all its sessions drain) or `quarantined`. */
  readonly state: 'ready' | 'draining' | 'quarantined';
  readonly quarantined?: string;
  readonly tunnels: number;
  readonly sessions: readonly SessionView[];
}

interface AgentsView {
  readonly agents: readonly AgentView[];
  readonly unanswered: readonly Unanswered[];
}

export const agents = command({
  name: 'agents',
  summary: 'List agents, the hubs that reach each, and the destinations each says it serves',
  details: 'Exits with 1 if there is none.',
  options: [new Option('--sessions', 'one line for each session, with its id, address and protocol')],
  examples: [
    { line: 'agents', does: 'one line for each agent' },
    { line: 'agents --tenant team-a --sessions', does: 'the sessions of one tenant' },
  ],
  async run({ options, output, plane }: Call<{ readonly sessions?: true }>) {
    const { sessions, unanswered } = await sessionsOf(await plane(), options.tenant);
    const text = options.sessions ? sessionsText : agentsText;
    output.show({ agents: agentsOf(sessions), unanswered }, (view) => text(view, output.style));
    return statusOf(sessions.length === 0, unanswered);
  },
});

/** @param sessions grouped by agent */
export function agentsOf(sessions: readonly SessionView[]): AgentView[] {
  const groups = new Map<string, SessionView[]>();
  for (const session of sessions) {
    const key = JSON.stringify([session.tenant, session.agent]);
    groups.set(key, [...(groups.get(key) ?? []), session]);
  }
  return [...groups.values()].map((group) => {
    const [{ agent, tenant }] = group as [SessionView];
    const quarantined = group.find((session) => session.quarantined !== undefined)?.quarantined;
    const draining = group.every((session) => session.draining);
    return {
      agent,
      tenant,
      hubs: [...new Set(group.map(({ hub }) => hub))],
      reaches: [...new Set(group.flatMap(({ reaches }) => reaches))],
      state: quarantined !== undefined ? 'quarantined' : draining ? 'draining' : 'ready',
      ...(quarantined !== undefined && { quarantined }),
      tunnels: group.reduce((sum, { tunnels }) => sum + tunnels, 0),
      sessions: group,
    };
  });
}

const COLUMNS: readonly Column[] = [
  { name: 'agent', least: 12 },
  { name: 'tenant', least: 8, drop: 3 },
  { name: 'state', least: 12 },
  { name: 'sessions', right: true },
  { name: 'tunnels', right: true },
  { name: 'age', drop: 2 },
  { name: 'hubs', least: 10, drop: 4 },
  // An agent may announce a hundred prefixes.
  { name: 'reaches', least: 10, most: 48, drop: 1 },
];

function stateText({ state, quarantined }: Pick<AgentView, 'state' | 'quarantined'>, style: Style): string {
  if (state === 'ready') return style.good('ready');
  return style.warning(quarantined ? `${state}: ${quarantined}` : state);
}

export function agentsText({ agents, unanswered }: AgentsView, style: Style): string {
  const rows = agents.map((agent) => [
    agent.agent,
    agent.tenant,
    stateText(agent, style),
    String(agent.sessions.length),
    String(agent.tunnels),
    age(Math.max(...agent.sessions.map(({ ageMs }) => ageMs))),
    agent.hubs.join(','),
    agent.reaches.join(','),
  ]);
  const body =
    rows.length === 0
      ? "No agent has a session: no dial can succeed. Read the agents' logs, or check that hubs listen: isthmus hubs\n"
      : table(COLUMNS, rows, style);
  return body + unansweredText(unanswered);
}

const SESSION_COLUMNS: readonly Column[] = [
  { name: 'session' },
  { name: 'agent', least: 12 },
  { name: 'tenant', least: 8, drop: 2 },
  { name: 'hub', least: 8 },
  { name: 'protocol', drop: 1 },
  { name: 'remote', drop: 3 },
  { name: 'state' },
  { name: 'tunnels', right: true, drop: 4 },
  { name: 'age', drop: 5 },
];

export function sessionsText({ agents, unanswered }: AgentsView, style: Style): string {
  const sessions = agents.flatMap((agent) => agent.sessions);
  const rows = sessions.map((each) => [
    each.session,
    each.agent,
    each.tenant,
    each.hub,
    each.protocol,
    each.remote,
    stateText({ state: each.quarantined !== undefined ? 'quarantined' : each.draining ? 'draining' : 'ready' }, style),
    String(each.tunnels),
    age(each.ageMs),
  ]);
  const body = table(SESSION_COLUMNS, rows, style);
  return `${body}\n${plural(agents.length, 'agent')}, ${plural(sessions.length, 'session')}\n${unansweredText(unanswered)}`;
}

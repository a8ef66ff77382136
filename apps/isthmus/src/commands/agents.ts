import { isIP } from 'node:net';
import { stateOfSessions } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { type Call, command } from '../command.ts';
import { type Kind, type ListColumn, type ListOptions, list, listCommand, rowsTable } from '../lists.ts';
import { age, EXIT, Failure, isoTime, plural, renamed, type Style, statusOf, usage } from '../output.ts';
import { type SessionView, sessionsOf, sessionViews } from '../plane/evidence.ts';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { table } from '../table.ts';

type AgentView = ReturnType<typeof agentsOf>[number];

export const AGENTS: Kind<AgentView> = {
  name: 'agents',
  one: 'agent',
  names: ({ agent }) => [agent],
  columns: () => COLUMNS,
  labels: ({ reaches }) => identifiersOf(reaches),
  async ask(call) {
    const plane = await call.plane();
    const { sessions: told, unanswered } = await sessionsOf(plane, call.options.tenant);
    const sessions = sessionViews(told);
    const status = statusOf(sessions.length === 0, unanswered);
    const whole = call.output.format === 'json' || call.output.format === 'yaml';
    const items = agentsOf(sessions).map(async (agent) =>
      whole && call.args.flat().includes(agent.agent) && agent.sessions.some(({ protocol }) => protocol === 'link')
        ? { ...agent, ...(await ofItself(plane, agent)) }
        : agent,
    );
    return { items: await Promise.all(items), unanswered, text: agentsText, status };
  },
};

/** What an agent says of itself, through its hub. Empty for one that does not answer. Go agents do not, nor those whose hubs do not. */
async function ofItself(plane: Plane, { tenant, agent }: AgentView): Promise<{ readonly itself?: object }> {
  const [status, list] = await Promise.all([
    plane.askAgent(tenant, agent, 'getStatus'),
    plane.askAgent(tenant, agent, 'listMembers'),
  ]);
  if (!status || !list) return {};
  const { version, runtime, startedMs, ready, checks, notices: told, tunnels } = status;
  const notices = told.map(({ text, todo }) => (todo === '' ? text : `${text}: ${todo}`));
  const { servers, serversWanted } = list;
  return {
    itself: { version, runtime, started: isoTime(startedMs), ready, checks, notices, tunnels, servers, serversWanted },
  };
}

export const SESSIONS: Kind<SessionView> = {
  name: 'sessions',
  one: 'session',
  names: ({ session, agent }) => [session, agent],
  columns: () => SESSION_COLUMNS,
  labels: ({ reaches }) => identifiersOf(reaches),
  async ask(call) {
    const { sessions, unanswered } = await sessionsOf(await call.plane(), call.options.tenant);
    const status = statusOf(sessions.length === 0, unanswered);
    return { items: sessionViews(sessions), unanswered, text: sessionsText, status };
  },
};

/** What an agent serves, by the names of --agent-identifiers. */
function identifiersOf(reaches: readonly string[]): Readonly<Record<string, readonly string[]>> {
  const found: Record<string, string[]> = {};
  for (const each of reaches) {
    const kind = each.includes('/') ? 'cidr' : isIP(each) !== 0 ? `ipv${isIP(each)}` : 'host';
    if (each === 'default-route') found[each] = ['true'];
    else found[kind] = [...(found[kind] ?? []), each];
  }
  return found;
}

export const agents = listCommand(AGENTS, {
  summary: 'List agents, the hubs that reach each, and the destinations each says it serves',
  details:
    'An agent that drains leaves when its last tunnel has ended: isthmus tunnels --agent shows what it waits for. Dials avoid one that is suspect: nothing is heard of it, or of its hub. Exits with 1 if there is none.',
  options: [new Option('--sessions', 'one line for each session, with its id, address and protocol')],
  examples: {
    agents: 'one line for each agent',
    'agents agent-1 -o yaml': 'all that is known of one, and what it says of itself',
    'agents --tenant team-a --sessions': 'the sessions of one tenant',
    'agents -l cidr=10.20.0.0/16 -w': 'who serves these addresses, and who comes and goes',
    'agents --field-selector state!=ready -o name': 'those that drain or are in quarantine',
  },
  run: (call: Call<ListOptions & { readonly sessions?: true }>) =>
    call.options.sessions ? list(SESSIONS, call) : list(AGENTS, call),
});

/** @param sessions grouped by agent */
export function agentsOf(sessions: readonly SessionView[]) {
  const groups = Map.groupBy(sessions, ({ tenant, agent }) => JSON.stringify([tenant, agent]));
  return [...groups.values()].map((group) => {
    const [{ agent, tenant }] = group as [SessionView];
    const quarantined = group.find((session) => session.quarantined !== undefined)?.quarantined;
    const state = stateOf(group);
    const drainingMs = state === 'draining' ? Math.max(...group.map((session) => session.drainingMs ?? 0)) : 0;
    return {
      agent,
      tenant,
      hubs: [...new Set(group.map(({ hub }) => hub))],
      reaches: [...new Set(group.flatMap(({ reaches }) => reaches))],
      state,
      ...(quarantined !== undefined && { quarantined }),
      /** For how long all its sessions have been draining, until its tunnels have ended. Not known if no hub says so. */
      ...(drainingMs > 0 && { drainingMs }),
      tunnels: group.reduce((sum, { tunnels }) => sum + tunnels, 0),
      sessions: group,
    };
  });
}

/** A session in quarantine has the reason, which may be empty. */
function stateOf(sessions: readonly SessionView[]) {
  return stateOfSessions(sessions.map((each) => ({ ...each, quarantined: each.quarantined !== undefined })));
}

const COLUMNS: readonly ListColumn<AgentView>[] = [
  { name: 'agent', least: 12, of: ({ agent }) => agent },
  { name: 'tenant', least: 8, drop: 3, of: ({ tenant }) => tenant },
  { name: 'state', least: 12, of: stateText },
  { name: 'sessions', right: true, of: ({ sessions }) => String(sessions.length) },
  { name: 'tunnels', right: true, of: ({ tunnels }) => String(tunnels), moves: true },
  { name: 'age', drop: 2, of: ({ sessions }) => age(Math.max(...sessions.map(({ ageMs }) => ageMs))), moves: true },
  { name: 'hubs', least: 10, drop: 4, of: ({ hubs }) => hubs.join(',') },
  // An agent may announce a hundred prefixes.
  { name: 'reaches', least: 10, most: 48, drop: 1, of: ({ reaches }) => reaches.join(',') },
];

function stateText(agent: Pick<AgentView, 'state' | 'quarantined' | 'drainingMs'>, style: Style): string {
  const { state, quarantined, drainingMs } = agent;
  if (state === 'ready') return style.good('ready');
  if (quarantined) return style.warning(`${state}: ${quarantined}`);
  return style.warning(state === 'draining' && drainingMs !== undefined ? `draining for ${age(drainingMs)}` : state);
}

export function agentsText(agents: readonly AgentView[], style: Style): string {
  if (agents.length > 0) return rowsTable(COLUMNS, agents, style);
  return "No agent has a session: no dial can succeed. Read the agents' logs, or check that hubs listen: isthmus hubs\n";
}

const SESSION_COLUMNS: readonly ListColumn<SessionView>[] = [
  { name: 'session', of: ({ session }) => session },
  { name: 'agent', least: 12, of: ({ agent }) => agent },
  { name: 'tenant', least: 8, drop: 2, of: ({ tenant }) => tenant },
  { name: 'hub', least: 8, of: ({ hub }) => hub },
  { name: 'protocol', drop: 1, of: ({ protocol }) => protocol },
  { name: 'remote', drop: 3, of: ({ remote }) => remote },
  {
    name: 'state',
    of: (session, style) => stateText({ state: stateOf([session]) }, style),
  },
  { name: 'tunnels', right: true, drop: 4, of: ({ tunnels }) => String(tunnels), moves: true },
  { name: 'age', drop: 5, of: ({ ageMs }) => age(ageMs), moves: true },
];

function sessionsText(sessions: readonly SessionView[], style: Style): string {
  const agents = new Set(sessions.map(({ tenant, agent }) => JSON.stringify([tenant, agent])));
  const body = rowsTable(SESSION_COLUMNS, sessions, style);
  return `${body}\n${plural(agents.size, 'agent')}, ${plural(sessions.length, 'session')}\n`;
}

interface QuarantineOptions {
  readonly reason?: string;
  readonly lift?: true;
}

export const quarantine = command({
  name: 'quarantine',
  summary: 'Keep new dials away from an agent, lift that again, or list agents in quarantine',
  details:
    "Applies to the whole plane. Open tunnels through the agent stay open; isthmus kick ends them. A plane with tenants needs --tenant; without tenants, the agent is one of the gateway's own. Exits with 1 if no such agent is known.",
  args: [new Argument('[agent]', "the agent's id; without it, lists agents in quarantine")],
  options: [
    new Option('--reason <text>', 'why, for other operators').conflicts('lift'),
    new Option('--lift', 'lift the quarantine'),
  ],
  examples: {
    quarantine: 'agents in quarantine, and why',
    'quarantine agent-3 --reason "disk full on node 7"': 'no new dials to agent-3',
    'quarantine agent-3 --lift': 'let it take dials again',
  },
  async run({ args: [agentId], options, output, plane }: Call<QuarantineOptions>) {
    const { reason = '', lift = false, tenant } = options;
    if (agentId === undefined) {
      if (lift || reason !== '') throw usage('name the agent: isthmus quarantine AGENT');
      return output.answers(await quarantined(await plane(), tenant), ({ agents }) => quarantinedText(agents));
    }
    if (!lift && reason === '') throw usage('say why, for other operators: --reason TEXT');
    const changed = await setQuarantine(await plane(), { agent: { agentId, tenant }, lift, reason });
    const shown = { agent: agentId, quarantined: !lift, ...changed };
    output.show(shown, quarantineText);
    return changed.known ? EXIT.good : EXIT.wrong;
  },
});

type ChangeView = adminApi.QuarantineResponse & {
  readonly agent: string;
  readonly quarantined: boolean;
  readonly by: string;
};

export function quarantineText({ agent, tenant, quarantined, by, known, sessions, tunnels }: ChangeView): string {
  const name = `${agent} of tenant ${tenant}`;
  if (!known) {
    const rest = quarantined ? 'It is in quarantine anyway if it connects' : 'It was not in quarantine';
    return `No agent ${name} is known at ${by}: check the name and --tenant. ${rest}\n`;
  }
  const there = `${plural(sessions, 'session')} known at ${by}`;
  if (!quarantined) return `${name} takes dials again; ${there}\n`;
  const rest = `${plural(tunnels, 'tunnel')} ${tunnels === 1 ? 'stays' : 'stay'} open`;
  return `${name} takes no new dials; ${there}, ${rest}\n`;
}

/**
 * Asks one after the other until one answers, because the registry spreads the change to all. Begins with gateways: they know all sessions,
 * and have a tenant.
 */
async function setQuarantine(plane: Plane, request: adminApi.DeepPartial<adminApi.QuarantineRequest>) {
  const isGateway = ({ roles }: Member) => roles.includes('gateway');
  const hubs = plane.members.filter((member) => member.roles.includes('hub') && !isGateway(member));
  const failures: string[] = [];
  for (const each of [...plane.members.filter(isGateway), ...hubs]) {
    const { answers, unanswered } = await plane.ask('quarantine', request, { members: [each] });
    if (answers[0]) return { by: answers[0].member.id, ...answers[0].value };
    failures.push(...unanswered.slice(-1).map(({ member, reason }) => `${member}: ${reason}`));
  }
  throw new Failure(EXIT.unasked, `no gateway or hub took the change: ${failures.join('; ') || 'none is known'}`);
}

async function quarantined(plane: Plane, tenant: string) {
  const { answers, unanswered } = await plane.ask('listQuarantined', { tenant }, { roles: ['gateway', 'hub'] });
  const told = answers.flatMap(({ value }) => value.agents.map(renamed));
  const agents = new Map(told.map((each) => [JSON.stringify([each.tenant, each.agent]), each]));
  return { agents: [...agents.values()], unanswered };
}

function quarantinedText(agents: Awaited<ReturnType<typeof quarantined>>['agents']): string {
  if (agents.length === 0) return 'No agent is in quarantine\n';
  return table(
    ['agent', 'tenant', 'reason'],
    agents.map(({ agent, tenant, reason }) => [agent, tenant, reason]),
  );
}

type Target = NonNullable<adminApi.KickRequest['target']>;

export const kick = command({
  name: 'kick',
  summary: "End an agent's sessions, one session, or one tunnel, at once",
  details:
    'An agent reconnects by itself; use quarantine to keep new dials away from it. On a plane with tenants, an agent needs --tenant. Exits with 1 if there is nothing with that name.',
  args: [
    new Argument('<what>', 'what to end').choices(['agent', 'session', 'tunnel']),
    new Argument(
      '<id>',
      'id of the agent, of the session (isthmus agents --sessions) or of the dial (isthmus tunnels)',
    ),
  ],
  options: [new Option('--reason <text>', 'why, for logs and audit').default('', 'none')],
  examples: {
    'kick tunnel 3f9c2a7be1d04c55': 'end one tunnel, by the id of its dial',
    'kick agent agent-3 --reason "stale version"': 'end its sessions and all tunnels in them',
  },
  async run({ args: [what = '', id = ''], options, output, plane }: Call<{ readonly reason: string }>) {
    const { reason, tenant } = options;
    const request = { target: targetOf(what, id, tenant), reason };
    const met = await plane();
    const instead = { sessionIds: [], tunnels: 0 };
    const whom = { instead, roles: what === 'tunnel' ? [] : (['hub'] as const) };
    const { answers, unanswered } = await met.ask('kick', request, whom);
    const sessions = [...new Set(answers.flatMap(({ value }) => value.sessionIds))];
    // A tunnel is ended at every member that it runs through, but counts once.
    const counts = answers.map(({ value }) => value.tunnels);
    const tunnels = what === 'tunnel' ? Math.max(0, ...counts) : counts.reduce((sum, count) => sum + count, 0);
    const found = sessions.length + tunnels > 0;
    const ended = `Ended ${plural(sessions.length, 'session')} and ${plural(tunnels, 'tunnel')}\n`;
    const view = { what, id, sessions, tunnels, unanswered };
    const text = (clean: typeof view) => (found ? ended : `There is no ${what} ${clean.id}: nothing was ended\n`);
    const status = output.answers(view, text, !found && unanswered.length === 0);
    return found ? EXIT.good : status;
  },
});

function targetOf(what: string, id: string, tenant: string): Target {
  if (what === 'agent') return { $case: 'agent', value: { agentId: id, tenant } };
  return { $case: what === 'session' ? 'sessionId' : 'dialId', value: id };
}

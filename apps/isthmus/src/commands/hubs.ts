import timers from 'node:timers/promises';
import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Argument, Option } from 'commander';
import { type Call, command, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type Kind, type ListColumn, listCommand, rowsTable } from '../lists.ts';
import { age, ago, bytes, EXIT, isoTime, plural, renamed, type Style, statusOf } from '../output.ts';
import { type Answer, byName, type Member } from '../plane/member.ts';
import { memberOf, type Plane } from '../plane/plane.ts';
import { table } from '../table.ts';

/** How a gateway reaches a hub. */
interface LinkView {
  readonly member: string;
  readonly link: 'own' | 'up' | 'down';
  /** For a link that is down: why, and how long ago. */
  readonly reason?: string;
}

type HubView = ReturnType<typeof hubsOf>[number];

export const HUBS: Kind<HubView> = {
  name: 'hubs',
  one: 'hub',
  names: ({ hub }) => [hub],
  columns: () => COLUMNS,
  async ask(call) {
    const met = await call.plane();
    const { answers, unanswered } = await met.ask('listMembers', {}, { roles: ['gateway', 'hub'] });
    const isCut = ({ links }: HubView) => links.some(({ link }) => link === 'down');
    const items = hubsOf(answers);
    return { items, unanswered, text: hubsText, status: statusOf(items.some(isCut), unanswered) };
  },
};

export const hubs = listCommand(HUBS, {
  summary: 'List hubs, the gateways that reach each, and the number of its sessions',
  details: 'Exits with 1 if a gateway cannot reach a hub.',
  examples: {
    hubs: 'all hubs that any member knows',
    'hubs hub-1 -w': 'while it is restarted',
  },
});

const LINKS = namesOf(adminApi.Hub_Link, 'LINK');

/** Returns each hub once, with every gateway's link to it. The hub's own answer about itself takes precedence. */
export function hubsOf(answers: readonly Answer<Pick<adminApi.ListMembersResponse, 'hubs' | 'nowMs'>>[]) {
  const found = new Map<string, { hub: adminApi.Hub; now: number; links: LinkView[] }>();
  for (const { member, value } of answers) {
    const { hubs, nowMs: now } = value;
    for (const hub of hubs) {
      const known = found.get(hub.hubId) ?? { hub, now, links: [] };
      if (member.id === hub.hubId) Object.assign(known, { hub, now });
      const link = LINKS[hub.link];
      const reason = link === 'down' && hub.failure && ago(hub.failure.text, hub.failure.atMs, now);
      if (link && link !== 'none' && member.roles.includes('gateway'))
        known.links.push({ member: member.id, link, ...(reason && { reason }) });
      found.set(hub.hubId, known);
    }
  }
  return [...found.values()]
    .map(({ hub, now, links }) => ({
      hub: hub.hubId,
      zone: hub.zone,
      draining: hub.draining,
      since: isoTime(hub.sinceMs),
      ageMs: Math.max(0, now - hub.sinceMs),
      peerAddress: hub.peerAddress,
      agentAddress: hub.agentAddress,
      sessions: hub.sessions,
      links,
    }))
    .sort((a, b) => byName(a.hub, b.hub));
}

function usable({ links }: HubView): number {
  return links.filter(({ link }) => link !== 'down').length;
}

function linksText(hub: HubView, style: Style): string {
  const text = `${usable(hub)} of ${hub.links.length}`;
  return usable(hub) < hub.links.length ? style.bad(text) : text;
}

const COLUMNS: readonly ListColumn<HubView>[] = [
  { name: 'hub', least: 12, of: ({ hub }) => hub },
  { name: 'zone', drop: 1, of: ({ zone }) => zone },
  { name: 'state', of: ({ draining }, style) => (draining ? style.warning('draining') : style.good('open')) },
  { name: 'age', drop: 3, of: ({ ageMs }) => age(ageMs), moves: true },
  { name: 'sessions', right: true, of: ({ sessions }) => String(sessions) },
  { name: 'gateways', of: linksText },
  { name: 'for gateways', drop: 4, of: ({ peerAddress }) => peerAddress },
  { name: 'for agents', drop: 2, of: ({ agentAddress }) => agentAddress },
];

export function hubsText(hubs: readonly HubView[], style: Style): string {
  const down = hubs.flatMap(({ hub, peerAddress, links }) =>
    links
      .filter(({ link }) => link === 'down')
      .map(({ member, reason }) => {
        const why = reason === undefined ? '' : `: ${reason}`;
        return `  ${member} does not reach ${hub} at ${peerAddress}${why}\n`;
      }),
  );
  const todo = 'Check that the hub runs, its --advertise-address and --peer-port, and --peer-ca-cert of both.\n';
  const problems = down.length > 0 ? `\nNo link:\n${down.join('')}${todo}` : '';
  const body = hubs.length > 0 ? rowsTable(COLUMNS, hubs, style) : 'No hub is known: agents cannot connect.\n';
  return body + problems;
}

interface DrainOptions {
  readonly dryRun?: true;
  readonly wait?: number;
}

export const drain = command({
  name: 'drain',
  summary: 'Drain a hub: it takes no new dials, its agents move, and tunnels move or finish',
  details:
    'Only a restart of the hub undoes it. Works for gateways and all-in-one servers too. A dry run exits with 1 if an agent would be left without a session, --wait if tunnels are left.',
  args: [new Argument('<hub>', 'its id, from isthmus hubs')],
  options: [
    new Option('--dry-run', 'only show what would move, and what might be cut'),
    durationOption('--wait <duration>', 'wait up to this long until no tunnel is left'),
  ],
  examples: {
    'drain hub-1 --dry-run': 'which agents have no other hub?',
    'drain hub-1 --wait 5m': 'before hub-1 is stopped',
  },
  async run({ args: [id = ''], options, output, plane, terminal }: Call<DrainOptions>) {
    const met = await plane();
    const member = memberOf(met, id);
    if (options.dryRun) {
      const plan = await met.askOne(member, 'drain', { dryRun: true });
      const view = dryRunView(id, plan, await callersOf(met, plan.plan?.running ?? []));
      output.show(view, dryRunText);
      return view.stranded === 0 ? EXIT.good : EXIT.wrong;
    }
    const left = await drained(met, member, options.wait ?? 0, terminal.interrupted);
    const view = { hub: id, dryRun: false, sessions: left.sessions, tunnels: left.tunnels };
    output.show(
      view,
      ({ hub }) =>
        `${hub} drains: ${plural(left.sessions, 'session')} and ${plural(left.tunnels, 'tunnel')} are left\n`,
    );
    return options.wait !== undefined && left.tunnels > 0 ? EXIT.wrong : EXIT.good;
  },
});

/** Asks for a drain, then polls what is left until nothing is or the time is over. */
async function drained(plane: Plane, member: Member, waitMs: number, signal: AbortSignal) {
  const end = performance.now() + waitMs;
  for (;;) {
    const left = await plane.askOne(member, 'drain', {});
    if (left.tunnels === 0 || signal.aborted || performance.now() >= end) return left;
    await timers.setTimeout(ISTHMUS.drainAskMs);
  }
}

/** Returns the callers of tunnels by their dials. A hub does not know them, and gateways do. */
async function callersOf(plane: Plane, tunnels: readonly adminApi.Tunnel[]): Promise<ReadonlyMap<string, string>> {
  if (tunnels.every(({ caller }) => caller !== '')) return new Map();
  const { answers } = await plane.ask('listTunnels', {}, { roles: ['gateway'] });
  return new Map(answers.flatMap(({ value }) => value.tunnels.map(({ dialId, caller }) => [dialId, caller] as const)));
}

function dryRunView(
  hub: string,
  { sessions, tunnels, plan }: adminApi.DrainResponse,
  callers: ReadonlyMap<string, string>,
) {
  return {
    hub,
    dryRun: true,
    sessions,
    tunnels,
    /** The number of agents without a session elsewhere. */
    stranded: plan?.stranded ?? 0,
    ...(plan?.gracefulMs !== undefined && { gracefulMs: plan.gracefulMs }),
    moves: (plan?.moves ?? []).map(renamed),
    running: (plan?.running ?? []).map((tunnel, at) => ({
      dial: tunnel.dialId,
      destination: tunnel.destination,
      agent: tunnel.agentId,
      /** Empty if no gateway that answers has it. */
      caller: tunnel.caller || (callers.get(tunnel.dialId) ?? ''),
      ageMs: tunnel.ageMs,
      bytes: tunnel.bytesUp + tunnel.bytesDown,
      /** 0 for a tunnel in use. */
      idleMs: tunnel.idleMs,
      /** `ends` in order, `moves` to another hub, or is `cut` if it still runs when the graceful time is over. */
      fate: plan?.fates[at] ?? 'cut',
    })),
  };
}

export function dryRunText(view: ReturnType<typeof dryRunView>, style: Style): string {
  const { hub, sessions, tunnels, stranded, gracefulMs, moves, running } = view;
  const right = (name: string) => ({ name, right: true }) as const;
  const rows = moves
    .slice(0, ISTHMUS.drainShown)
    .map(({ agent, tenant, elsewhere, tunnels: through, session }) => [
      agent,
      tenant,
      elsewhere === 0 ? style.bad('none') : String(elsewhere),
      String(through),
      session,
    ]);
  const cut = running
    .slice(0, ISTHMUS.drainShown)
    .map(({ destination, agent, caller, ageMs, bytes: carried, idleMs, fate, dial }) => [
      destination,
      agent,
      caller,
      age(ageMs),
      bytes(carried),
      idleMs > 0 ? `idle for ${age(idleMs)}` : 'in use',
      fate === 'cut' ? style.bad(fate) : fate,
      dial,
    ]);
  const lost = stranded > 0 ? `, ${stranded} of them with nowhere else to go` : '';
  return [
    `Draining ${hub} would send away ${plural(sessions, 'session')}${lost}; ${plural(tunnels, 'tunnel')} would move, or run on until ${tunnels === 1 ? 'it ends' : 'they end'}. Nothing was changed.\n`,
    rows.length > 0
      ? `\n${table(['agent', 'tenant', right('sessions elsewhere'), right('tunnels'), 'session'], rows)}`
      : '',
    more(moves.length),
    cut.length > 0
      ? `\n${fateOf(hub, gracefulMs)}:\n${table(['destination', 'agent', 'caller', 'age', right('bytes'), 'use', 'then', 'dial'], cut)}`
      : '',
    more(running.length),
    stranded > 0
      ? `\n${style.bad(`${plural(stranded, 'session')} ${stranded === 1 ? 'has' : 'have'} nowhere else to go`)}: until its agent has another hub, dials to that agent wait or fail.\nGive such agents --session-count=2 or more, or wait until they have connected to another hub.\n`
      : '',
  ].join('');
}

/** What becomes of the tunnels that run: a drain waits for them, the end of the process may not. */
function fateOf(hub: string, gracefulMs: number | undefined): string {
  if (gracefulMs === undefined) return `Running now. Draining cuts none, and ${hub} waits for them before it stops`;
  const grace = gracefulMs === 0 ? '' : ` after ${gracefulMs / 1000} s`;
  return `Running now. Draining cuts none; stopping ${hub} cuts those that still run${grace}`;
}

function more(count: number): string {
  return count > ISTHMUS.drainShown ? `and ${count - ISTHMUS.drainShown} more (-o json lists them)\n` : '';
}

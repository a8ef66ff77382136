import type { adminApi } from '@isthmus/proto/admin';
import { Option } from 'commander';
import { type Call, count } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type Kind, type ListColumn, listCommand, rowsTable } from '../lists.ts';
import { age, bytes, isoTime, plural, renamed, type Style } from '../output.ts';
import { type Answer, roleNames } from '../plane/member.ts';

export type TunnelView = ReturnType<typeof tunnelView> & {
  /** The members it runs through, with the role of each. */
  readonly through: readonly { readonly member: string; readonly role: string }[];
};

interface Options {
  readonly agent?: string;
  readonly hub?: string;
  readonly destination?: string;
  readonly sort: 'age' | 'bytes';
}

export const TUNNELS: Kind<TunnelView> = {
  name: 'tunnels',
  one: 'tunnel',
  names: ({ dial }) => [dial],
  columns: columnsFor,
  async ask(call: Call<Partial<Options>>) {
    const { options } = call;
    const { answers, unanswered } = await (await call.plane()).ask('listTunnels', { tenant: options.tenant });
    return { items: selected(tunnelsOf(answers), options), unanswered, text: tunnelsText };
  },
};

export const tunnels = listCommand(TUNNELS, {
  summary: 'List the open tunnels of the plane, with their bytes and age',
  options: [
    new Option('--agent <id>', 'only tunnels through this agent'),
    new Option('--hub <id>', 'only tunnels through this hub'),
    new Option('--destination <text>', 'only tunnels whose destination contains this text'),
    new Option('--sort <by>', 'order: oldest first, or most bytes first').choices(['age', 'bytes']).default('age'),
    new Option('--limit <count>', 'most tunnels to list').argParser(count).default(ISTHMUS.tunnelsListed),
  ],
  examples: {
    'tunnels --agent agent-3': 'before agent-3 is taken out',
    'tunnels --sort bytes --limit 10': 'which tunnels carry the most',
    'tunnels -o wide': 'which of them have outlived a hub, and which wait for another',
    'tunnels --destination :10250 -w': 'exec, logs and port-forward: what goes to kubelets, live',
  },
});

/** Returns each tunnel once, preferably as its gateway reports it, because only the gateway knows the caller. */
function tunnelsOf(answers: readonly Answer<adminApi.ListTunnelsResponse>[]): TunnelView[] {
  const found = new Map<string, TunnelView>();
  for (const { member, value } of answers) {
    for (const tunnel of value.tunnels) {
      const known = found.get(tunnel.dialId);
      const [role = ''] = roleNames([tunnel.role]);
      const through = [...(known?.through ?? []), { member: member.id, role }];
      const better = !known || role === 'gateway';
      found.set(tunnel.dialId, { ...(better ? tunnelView(tunnel) : known), through });
    }
  }
  return [...found.values()];
}

function tunnelView(told: adminApi.Tunnel) {
  const { role: _role, idleMs: _idle, sinceMs, halfClosed, resume, ...tunnel } = told;
  return {
    ...renamed(tunnel),
    since: isoTime(sinceMs),
    /** The side that has ended its direction while the other goes on. */
    ...(halfClosed !== '' && { halfClosed }),
    /** Set for a tunnel that outlives its hub. */
    ...(resume && { resume }),
  };
}

function selected(
  all: readonly TunnelView[],
  { agent, hub, destination = '', sort = 'age' }: Partial<Options>,
): TunnelView[] {
  const weight = sort === 'age' ? (one: TunnelView) => one.ageMs : (one: TunnelView) => one.bytesUp + one.bytesDown;
  return all
    .filter((tunnel) => agent === undefined || tunnel.agent === agent)
    .filter((tunnel) => hub === undefined || tunnel.hub === hub)
    .filter((tunnel) => tunnel.destination.includes(destination))
    .sort((a, b) => weight(b) - weight(a));
}

const COLUMNS: readonly ListColumn<TunnelView>[] = [
  { name: 'dial', of: ({ dial }) => dial },
  { name: 'tenant', least: 8, drop: 1, of: ({ tenant }) => tenant },
  { name: 'destination', least: 16, of: ({ destination }) => destination },
  { name: 'agent', least: 10, of: ({ agent }) => agent },
  { name: 'hub', least: 8, drop: 3, of: ({ hub }) => hub },
  { name: 'caller', least: 10, drop: 2, of: ({ caller }) => caller },
  { name: 'age', of: ({ ageMs }) => age(ageMs), moves: true },
  { name: 'up', right: true, of: ({ bytesUp }) => bytes(bytesUp), moves: true },
  { name: 'down', right: true, of: ({ bytesDown }) => bytes(bytesDown), moves: true },
];

const RESUME_COLUMNS: readonly ListColumn<TunnelView>[] = [
  { name: 'moves', right: true, wide: true, of: ({ resume }) => (resume ? String(resume.moves) : '') },
  { name: 'kept', right: true, wide: true, of: ({ resume }) => (resume ? bytes(resume.keptBytes) : ''), moves: true },
];

/** The state of all tunnels is news only if one of them waits, or is half-closed. */
function columnsFor(tunnels: readonly TunnelView[]): readonly ListColumn<TunnelView>[] {
  const news = tunnels.some(({ resume, halfClosed }) => resume?.attached === false || halfClosed);
  return [...COLUMNS, { name: 'state', of: stateText, ...(!news && { wide: true }) }, ...RESUME_COLUMNS];
}

function stateText({ resume, halfClosed }: TunnelView, style: Style): string {
  if (resume?.attached === false) return style.warning('detached');
  return halfClosed ? `ended by ${halfClosed}` : resume ? 'attached' : '';
}

export function tunnelsText(tunnels: readonly TunnelView[], style: Style, { all = tunnels } = {}): string {
  const rest = all.length > tunnels.length ? ` of ${all.length} (--limit shows more)` : '';
  const body = tunnels.length > 0 ? `${rowsTable(columnsFor(tunnels), tunnels, style)}\n` : '';
  return `${body}${plural(tunnels.length, 'tunnel')}${rest}\n`;
}

import type { Agent } from '../model/agents.ts';
import { shown } from '../model/text.ts';
import { Name } from '../parts/name.tsx';
import { State, type Tone } from '../parts/state.tsx';
import { Table } from '../parts/table.tsx';

const TONES: Readonly<Record<Agent['state'], Tone>> = {
  well: 'good',
  thin: 'warn',
  draining: 'warn',
  quarantined: 'bad',
};

const COLUMNS = [
  { name: 'Agent' },
  { name: 'Tenant' },
  { name: 'State' },
  { name: 'Hubs' },
  { name: 'Zone' },
  { name: 'Tunnels', right: true },
  { name: 'Says it reaches' },
];

/**
 * @param all how many there are, listed or not
 * @param none what is said if there are none
 */
export function AgentTable({
  agents,
  all,
  none,
  title,
}: {
  readonly agents: readonly Agent[];
  readonly all: number;
  readonly none: string;
  readonly title: string;
}) {
  const rows = agents.map(({ tenant, id, sessions, zones, state, tunnels }) => ({
    key: `${tenant}\0${id}`,
    bad: state === 'quarantined',
    cells: [
      <Name key="id" text={id} />,
      <Name key="tenant" text={tenant} />,
      <State key="state" tone={TONES[state]} word={wordFor(state, sessions[0]?.quarantineReason ?? '')} />,
      <Name key="hubs" text={[...new Set(sessions.map(({ hubId }) => hubId))].join(', ')} />,
      zones === '' ? '–' : <Name key="zones" text={zones} />,
      tunnels.toLocaleString('en'),
      <Name key="claims" text={claims(sessions[0])} most={80} />,
    ],
  }));
  return (
    <>
      <Table title={title} columns={COLUMNS} rows={rows} none={none} />
      {all > agents.length && <p>And {(all - agents.length).toLocaleString('en')} more.</p>}
    </>
  );
}

function wordFor(state: Agent['state'], reason: string): string {
  if (state === 'thin') return 'one hub only';
  return state === 'quarantined' ? `in quarantine: ${shown(reason, 80)}` : state;
}

function claims(session: Agent['sessions'][number] | undefined): string {
  const { ipv4 = [], ipv6 = [], host = [], cidr = [], defaultRoute = false } = session?.identifiers ?? {};
  return [...ipv4, ...ipv6, ...host, ...cidr, ...(defaultRoute ? ['default route'] : [])].join(', ') || '–';
}

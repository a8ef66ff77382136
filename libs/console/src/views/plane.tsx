import { age } from '@isthmus/findings';
import { Role } from '@isthmus/proto/admin-enums';
import type { ComponentChildren } from 'preact';
import { type Health, healthOf, type Plane, type Seen } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { type Column, Table } from '../parts/table.tsx';
import { Findings, Name, State, TONES } from '../parts/text.tsx';
import type { Status } from '../rpc.ts';
import { AgentMap } from './agents.tsx';
import { RecentCuts } from './cuts.tsx';
import { LinkMap } from './link-map.tsx';
import type { ViewProps } from './view.ts';

/** Everything at once, what is wrong first: for a wall. */
export function PlaneView({ plane, agents, findings, path }: ViewProps) {
  return (
    <>
      <Findings findings={findings} plane={plane} />
      <RecentCuts plane={plane} />
      <section aria-labelledby="members">
        <h2 id="members">Gateways and hubs</h2>
        <LinkMap plane={plane} />
      </section>
      <AgentMap agents={agents} plane={plane} path={path} />
      <section aria-labelledby="each">
        <h2 id="each">Each gateway and hub</h2>
        <MemberTable plane={plane} />
      </section>
    </>
  );
}

/** Columns of numbers that a member says of itself. */
const COUNTS: readonly { readonly name: string; of(status: Status): ComponentChildren }[] = [
  // Those that a hub holds, as in `isthmus status`.
  {
    name: 'Sessions',
    of: ({ roles, sessions }) => (roles.includes(Role.ROLE_HUB) ? sessions.toLocaleString('en') : '–'),
  },
  { name: 'Tunnels', of: ({ tunnels }) => tunnels.toLocaleString('en') },
  { name: 'Pending', of: ({ pendingDials }) => pendingDials.toLocaleString('en') },
  { name: 'Parked', of: ({ parkedDials }) => parkedDials.toLocaleString('en') },
  // The first rates are those of the first role, over 10 s.
  { name: 'Dials/s', of: ({ dialRates }) => perSecond(dialRates[0]?.dialsPerSecond) },
  { name: 'Failures/s', of: ({ dialRates }) => perSecond(dialRates[0]?.failuresPerSecond) },
  {
    name: 'Up for',
    of: ({ startedMs, nowMs }) => <span title={`since ${clock(startedMs)}`}>{age(nowMs - startedMs)}</span>,
  },
];

/** Each member, and what it says of itself. */
function MemberTable({ plane }: { readonly plane: Plane }) {
  const stateOf = (member: Seen) => {
    const health = healthOf(member.id, plane);
    return <State tone={TONES[health]} word={wordFor(health, member)} />;
  };
  const columns: readonly Column<Seen>[] = [
    { name: 'Member', of: ({ id }) => <Name text={id} /> },
    { name: 'State', of: stateOf },
    { name: 'Role', of: ({ roles }) => roles.join(', ') },
    { name: 'Zone', of: ({ zone }) => (zone === '' ? '–' : <Name text={zone} />) },
    ...COUNTS.map(
      ({ name, of }): Column<Seen> => ({ name, right: true, of: ({ status }) => (status ? of(status) : '–') }),
    ),
    { name: 'Version', of: ({ version }) => shown(version, 20) },
    { name: 'Admin port', of: ({ self, address }) => (self ? 'this page' : <Name text={address || '–'} />) },
  ];
  return (
    <Table
      title="Members"
      columns={columns}
      rows={plane.members}
      keyOf={({ id }) => id}
      bad={({ id }) => TONES[healthOf(id, plane)] === 'bad'}
      none="No member is known yet."
    />
  );
}

function perSecond(rate: number | undefined): string {
  if (rate === undefined) return '–';
  return rate === 0 ? '0' : rate.toFixed(rate < 10 ? 1 : 0);
}

function wordFor(health: Health, { silent }: Seen): string {
  if (health === 'hung' && silent !== undefined) return `hung: ${shown(silent, 60)}`;
  if (health === 'silent') return 'serves, no answer';
  if (health === 'unlinked') return 'answers, no link';
  return health;
}

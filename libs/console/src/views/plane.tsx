import { age } from '@isthmus/findings';
import { Role } from '@isthmus/proto/admin-enums';
import type { ComponentChildren } from 'preact';
import { consoleOf, type Health, healthOf, type Plane, type Seen } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { type Column, Table } from '../parts/table.tsx';
import { Findings, Name, State, type Tone } from '../parts/text.tsx';
import type { Status } from '../rpc.ts';
import { AgentMap } from './agents.tsx';
import { RecentCuts } from './cuts.tsx';
import { LinkMap } from './link-map.tsx';
import type { ViewProps } from './view.ts';
import { Refusals } from './why.tsx';

/** Everything at once, what is wrong first: for a wall. */
export function PlaneView({ plane, agents, findings, path }: ViewProps & { readonly path: readonly string[] }) {
  const refusals = plane.members.flatMap(({ id, status }) =>
    (status?.refusals ?? []).map((refusal) => ({ member: id, refusal })),
  );
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
      {refusals.length > 0 && (
        <section aria-labelledby="refused">
          <h2 id="refused">Connections refused in the last five minutes</h2>
          <Refusals refusals={refusals} now={plane.at} />
        </section>
      )}
    </>
  );
}

const TONES: Readonly<Record<Health, Tone>> = {
  ok: 'good',
  unready: 'bad',
  draining: 'draining',
  silent: 'warn',
  unlinked: 'bad',
  hung: 'bad',
  unseen: 'calm',
  lost: 'bad',
};

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
    const health = healthOf(member, plane);
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
    { name: 'Console', of: link },
  ];
  return (
    <Table
      title="Members"
      columns={columns}
      rows={plane.members}
      keyOf={({ id }) => id}
      bad={(member) => TONES[healthOf(member, plane)] === 'bad'}
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
  return health === 'unseen' ? 'not asked from here' : health;
}

function link(member: Seen) {
  if (member.self) return 'this page';
  const href = consoleOf(member, 'plane');
  return href === undefined ? <Name text={member.address} /> : <a href={href}>{shown(member.address, 60)}</a>;
}

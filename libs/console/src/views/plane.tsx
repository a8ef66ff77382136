import { Role } from '@isthmus/proto/admin-enums';
import { consoleOf, type Health, healthOf, type Plane, type Seen } from '../model/plane.ts';
import { age, clock, shown } from '../model/text.ts';
import { Table } from '../parts/table.tsx';
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
      <Findings findings={findings} known={plane.at > 0} />
      <RecentCuts plane={plane} />
      <section aria-labelledby="members">
        <h2 id="members">Gateways and hubs</h2>
        <LinkMap plane={plane} />
      </section>
      <AgentMap agents={agents} known={plane.at > 0} path={path} />
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
  well: 'good',
  unready: 'bad',
  draining: 'draining',
  silent: 'warn',
  unlinked: 'bad',
  hung: 'bad',
  unseen: 'calm',
  lost: 'bad',
};

const COLUMNS = [
  { name: 'Member' },
  { name: 'State' },
  { name: 'Role' },
  { name: 'Zone' },
  { name: 'Sessions', right: true },
  { name: 'Tunnels', right: true },
  { name: 'Pending', right: true },
  { name: 'Parked', right: true },
  { name: 'Dials/s', right: true },
  { name: 'Failures/s', right: true },
  { name: 'Up for', right: true },
  { name: 'Version' },
  { name: 'Console' },
];

/** Each member, and what it says of itself. */
function MemberTable({ plane }: { readonly plane: Plane }) {
  const rows = plane.members.map((member) => {
    const { id, status, roles, zone, version } = member;
    const health = healthOf(member, plane);
    return {
      key: id,
      bad: TONES[health] === 'bad',
      cells: [
        <Name key="name" text={id} />,
        <State key="state" tone={TONES[health]} word={wordFor(health, member)} />,
        roles.join(', '),
        zone === '' ? '–' : <Name key="zone" text={zone} />,
        ...(status ? counts(status) : ['–', '–', '–', '–', '–', '–', '–']),
        shown(version, 20),
        link(member),
      ],
    };
  });
  return <Table title="Members" columns={COLUMNS} rows={rows} none="No member is known yet." />;
}

function counts(status: Status) {
  // The first rates are those of the first role, over 10 s.
  const [rate] = status.dialRates;
  return [
    // Those that a hub holds, as in `isthmus status`.
    status.roles.includes(Role.ROLE_HUB) ? status.sessions.toLocaleString('en') : '–',
    status.tunnels.toLocaleString('en'),
    status.pendingDials.toLocaleString('en'),
    status.parkedDials.toLocaleString('en'),
    perSecond(rate?.dialsPerSecond),
    perSecond(rate?.failuresPerSecond),
    <span key="age" title={`since ${clock(status.startedMs)}`}>
      {age(status.nowMs - status.startedMs)}
    </span>,
  ];
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

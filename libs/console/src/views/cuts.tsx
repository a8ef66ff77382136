import { age, cutsIn, groupsOfCuts } from '@isthmus/findings';
import { CONSOLE } from '../defaults.ts';
import { traceLink } from '../model/dials.ts';
import { addressOf, frontsOf, type Plane, type Told } from '../model/plane.ts';
import { clock, plural, shown } from '../model/text.ts';
import { useHistories } from '../parts/follow.ts';
import { Table } from '../parts/table.tsx';
import type { History } from '../rpc.ts';

const GROUP_COLUMNS = [
  { name: 'Last' },
  { name: 'Cut by' },
  { name: 'What' },
  { name: 'Tenant' },
  { name: 'Tunnels', right: true },
  { name: 'Told by hold' },
  { name: 'Reason' },
];

const CUT_COLUMNS = [
  { name: 'Time' },
  { name: 'Cut by' },
  { name: 'Tenant' },
  { name: 'Caller' },
  { name: 'Destination' },
  { name: 'Agent' },
  { name: 'Age', right: true },
  { name: 'Dial' },
];

/** The tunnels of all who answered, the last cut first. */
function cutsOf(told: readonly Told<History>[]) {
  return cutsIn(told.map(({ member, answer }) => ({ member: member.id, cuts: answer?.cuts ?? [] })));
}

type Cut = ReturnType<typeof cutsIn>[number];

/** What was cut in the last hour, by cause, for the first view. Nothing if nothing was. */
export function RecentCuts({ plane }: { readonly plane: Plane }) {
  const { answer = [] } = useHistories(frontsOf(plane));
  const cuts = cutsOf(answer);
  if (cuts.length === 0) return null;
  return (
    <section aria-labelledby="recent-cuts">
      <h2 id="recent-cuts">{plural(cuts.length, 'tunnel')} cut in the last hour</h2>
      <Causes cuts={cuts} />
      <p>
        <a href={addressOf('time')}>Whose they were, one by one</a>
      </p>
    </section>
  );
}

/** Tunnels that neither side ended: by cause, and one by one. */
export function Cuts({ told, traceUrl }: { readonly told: readonly Told<History>[]; readonly traceUrl: string }) {
  const cuts = cutsOf(told);
  const rows = cuts.slice(0, CONSOLE.cutsShown).map((cut) => ({
    key: cut.dialId,
    cells: [
      clock(cut.atMs),
      cut.by,
      shown(cut.tenant),
      shown(cut.caller) || 'unknown',
      shown(cut.destination),
      shown(cut.agentId),
      age(cut.ageMs),
      <DialName key="dial" dial={cut.dialId} trace={traceLink(traceUrl, cut.traceId)} />,
    ],
  }));
  return (
    <>
      <h3>Cut tunnels</h3>
      <Causes cuts={cuts} />
      {rows.length > 0 && <Table title="Tunnels that were cut" columns={CUT_COLUMNS} rows={rows} none="" />}
      {cuts.length > rows.length && (
        <p>And {plural(cuts.length - rows.length, 'tunnel')} more: isthmus cuts has all.</p>
      )}
    </>
  );
}

function Causes({ cuts }: { readonly cuts: readonly Cut[] }) {
  const rows = groupsOfCuts(cuts).map(({ by, what, tenant, hold, reason, tunnels, lastMs }) => ({
    key: `${by} ${what} ${tenant} ${hold} ${reason}`,
    cells: [clock(lastMs), by, shown(what), shown(tenant), tunnels, shown(hold), shown(reason, 300)],
  }));
  return <Table title="What cut tunnels" columns={GROUP_COLUMNS} rows={rows} none="None in the last hour." />;
}

function DialName({ dial, trace }: { readonly dial: string; readonly trace: string | undefined }) {
  return trace === undefined ? <span>{shown(dial)}</span> : <a href={trace}>{shown(dial)}</a>;
}

import { age, cutsIn, groupsOfCuts, plural } from '@isthmus/findings';
import { CONSOLE } from '../defaults.ts';
import { traceLink } from '../model/dials.ts';
import { frontsOf, hrefOf, type Plane } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { useHistories } from '../parts/follow.ts';
import { type Column, Table } from '../parts/table.tsx';
import type { History, Told } from '../rpc.ts';

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
        <a href={hrefOf('time')}>Whose they were, one by one</a>
      </p>
    </section>
  );
}

/** Tunnels that neither side ended: by cause, and one by one. */
export function Cuts({ told, traceUrl }: { readonly told: readonly Told<History>[]; readonly traceUrl: string }) {
  const cuts = cutsOf(told);
  return (
    <>
      <h3>Cut tunnels</h3>
      <Causes cuts={cuts} />
      {cuts.length > 0 && (
        <Table
          title="Tunnels that were cut"
          columns={cutColumns(traceUrl)}
          rows={cuts}
          keyOf={({ dialId }) => dialId}
          most={CONSOLE.cutsShown}
          more={(left) => `${plural(left, 'tunnel')} more: isthmus cuts has all.`}
        />
      )}
    </>
  );
}

function cutColumns(traceUrl: string): readonly Column<Cut>[] {
  return [
    { name: 'Time', of: ({ atMs }) => clock(atMs) },
    { name: 'Cut by', of: ({ by }) => by },
    { name: 'Tenant', of: ({ tenant }) => shown(tenant) },
    { name: 'Caller', of: ({ caller }) => shown(caller) || 'unknown' },
    { name: 'Destination', of: ({ destination }) => shown(destination) },
    { name: 'Agent', of: ({ agentId }) => shown(agentId) },
    { name: 'Age', right: true, of: ({ ageMs }) => age(ageMs) },
    { name: 'Dial', of: ({ dialId, traceId }) => <DialName dial={dialId} trace={traceLink(traceUrl, traceId)} /> },
  ];
}

type Group = ReturnType<typeof groupsOfCuts>[number];

const GROUP_COLUMNS: readonly Column<Group>[] = [
  { name: 'Last', of: ({ lastMs }) => clock(lastMs) },
  { name: 'Cut by', of: ({ by }) => by },
  { name: 'What', of: ({ what }) => shown(what) },
  { name: 'Tenant', of: ({ tenant }) => shown(tenant) },
  { name: 'Tunnels', right: true, of: ({ tunnels }) => tunnels },
  { name: 'Told by hold', of: ({ hold }) => shown(hold) },
  { name: 'Reason', of: ({ reason }) => shown(reason, 300) },
];

function Causes({ cuts }: { readonly cuts: readonly Cut[] }) {
  return (
    <Table
      title="What cut tunnels"
      columns={GROUP_COLUMNS}
      rows={groupsOfCuts(cuts)}
      keyOf={({ by, what, tenant, hold, reason }) => `${by} ${what} ${tenant} ${hold} ${reason}`}
      none="None in the last hour."
    />
  );
}

function DialName({ dial, trace }: { readonly dial: string; readonly trace: string | undefined }) {
  return trace === undefined ? <span>{shown(dial)}</span> : <a href={trace}>{shown(dial)}</a>;
}

import { age, bytes, plural } from '@isthmus/findings';
import { useMemo, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { frontsOf, hrefOf, selfOf } from '../model/plane.ts';
import { shown } from '../model/text.ts';
import { useAddressed, useAsked } from '../parts/follow.ts';
import { Choice, Field, MemberChoice } from '../parts/form.tsx';
import { type Column, Silent, Table } from '../parts/table.tsx';
import { Name } from '../parts/text.tsx';
import { act, askAll, reasonOf, type Tunnel } from '../rpc.ts';
import type { ViewProps } from './view.ts';

const SORTS = ['oldest', 'newest', 'most bytes'] as const;
type Sort = (typeof SORTS)[number];

/** The tunnels of all gateways, or of one: who, where to, through what, how much. */
export function TunnelsView({ plane, ask, path }: ViewProps) {
  const [wanted = '', asked = ''] = path;
  const fronts = frontsOf(plane);
  const self = selfOf(plane);
  // A hub lists what runs through it.
  const sources = self && !fronts.includes(self) ? [self, ...fronts] : fronts;
  const [text, find] = useAddressed('tunnels', wanted, asked);
  const choose = (id: string) => location.replace(hrefOf('tunnels', text, id));
  const [sort, setSort] = useState<Sort>('oldest');
  const one = sources.filter(({ id }) => id === asked);
  const members = one.length > 0 ? one : fronts;
  const ids = members.map(({ id }) => id);
  const list = async () => {
    const told = await askAll(ids, 'ListTunnels', {});
    // An all-in-one server lists a tunnel for each of its roles: the first one knows the caller.
    const firstOf = (member: string) => members.find(({ id }) => id === member)?.status?.roles[0];
    const tunnels = told.flatMap(({ member: { id: at }, answer }) =>
      (answer?.tunnels ?? []).filter(({ role }) => role === firstOf(at)).map((tunnel) => ({ ...tunnel, at })),
    );
    return { told, tunnels };
  };
  const { answer, fault } = useAsked(list, CONSOLE.tunnelsMs, `${ids}`);
  const found = useMemo(() => select(answer?.tunnels ?? [], text, sort), [answer, text, sort]);
  const kick = (tunnel: Listed) => ask(kicking(tunnel));
  return (
    <section aria-labelledby="tunnels">
      <h2 id="tunnels">{plural(found.length, 'tunnel')}</h2>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        <MemberChoice members={sources} all="all gateways" chosen={one[0]?.id ?? ''} choose={choose} />
        <Field label="Find" type="search" value={text} placeholder="destination, caller, agent, dial" typed={find} />
        <Choice label="Order" from={SORTS} chosen={sort} choose={(by) => setSort(by as Sort)} />
      </form>
      {fault !== undefined && <p class="fault">{reasonOf(fault)}</p>}
      <Silent told={answer?.told} />
      <p>{resumeText(found)}</p>
      <Table
        title="Tunnels"
        columns={columnsOf(kick, found.length > 1)}
        rows={found}
        keyOf={({ dialId }) => dialId}
        bad={({ resume }) => resume?.attached === false}
        none={
          text === ''
            ? 'No tunnel is open here: make a dial under Why.'
            : 'No tunnel here has that in its names. It may have ended: Time has those that were cut.'
        }
        most={CONSOLE.tunnelRows}
        more={(left) => `${plural(left, 'tunnel')} more: narrow the search.`}
      />
    </section>
  );
}

/** A tunnel, and the id of the member that lists it. */
interface Listed extends Tunnel {
  readonly at: string;
}

function select(tunnels: readonly Listed[], text: string, sort: Sort): Listed[] {
  const wanted = text.trim().toLowerCase();
  const found = tunnels.filter(({ destination, caller, agentId, tenant, dialId }) =>
    [destination, caller, agentId, tenant, dialId].some((name) => name.toLowerCase().includes(wanted)),
  );
  const volume = ({ bytesUp, bytesDown }: Tunnel) => bytesUp + bytesDown;
  const by: Readonly<Record<Sort, (a: Tunnel, b: Tunnel) => number>> = {
    oldest: (a, b) => a.sinceMs - b.sinceMs,
    newest: (a, b) => b.sinceMs - a.sinceMs,
    'most bytes': (a, b) => volume(b) - volume(a),
  };
  return found.sort(by[sort]);
}

/** What becomes of these tunnels if they lose their hub. */
function resumeText(tunnels: readonly Tunnel[]): string {
  const resumable = tunnels.flatMap(({ resume }) => resume ?? []);
  const waiting = resumable.filter(({ attached }) => !attached).length;
  const moves = resumable.reduce((sum, { moves }) => sum + moves, 0);
  const kept = resumable.reduce((sum, { keptBytes }) => sum + keptBytes, 0);
  const counts = [`${waiting} of them wait for a way to their agent`, `${plural(moves, 'move')} so far`];
  return `${resumable.length} of ${tunnels.length} can outlive their hub: ${counts.join(', ')}, ${bytes(kept)} kept.`;
}

/** Whether something carries it, and who has ended its own direction; empty for a tunnel that ends with what carries it. */
function stateOf({ resume, halfClosed }: Tunnel): string {
  if (resume?.attached === false) return 'detached';
  if (halfClosed !== '') return `ended by ${halfClosed}`;
  return resume ? 'attached' : '';
}

/** @param brief whether a phone shows two lines of each: a tunnel's dial leads to the whole of it */
function columnsOf(kick: (tunnel: Listed) => void, brief: boolean): readonly Column<Listed>[] {
  const in1 = brief ? { line: 1 as const } : {};
  const in2 = brief ? { line: 2 as const } : {};
  return [
    { name: 'Destination', ...in1, of: ({ destination }) => <Name text={destination} /> },
    { name: 'Caller', of: ({ caller }) => <Name text={caller} /> },
    { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
    { name: 'Agent', ...in2, of: ({ agentId }) => <Name text={agentId} /> },
    { name: 'Hub', of: ({ hubId }) => <Name text={hubId} /> },
    { name: 'State', ...in1, of: stateOf },
    { name: 'Moves', right: true, of: ({ resume }) => resume?.moves ?? '' },
    { name: 'Age', ...in1, right: true, of: ({ ageMs }) => age(ageMs) },
    { name: 'Up', ...in2, right: true, of: ({ bytesUp }) => bytes(bytesUp) },
    { name: 'Down', ...in2, right: true, of: ({ bytesDown }) => bytes(bytesDown) },
    { name: 'Dial', ...in2, of: DialLink },
    { name: 'End it', of: (tunnel) => <End tunnel={tunnel} kick={kick} /> },
  ];
}

function DialLink({ dialId }: Tunnel) {
  return (
    <a href={hrefOf('tunnels', dialId)}>
      <Name text={dialId} most={20} />
    </a>
  );
}

function End({ tunnel, kick }: { readonly tunnel: Listed; readonly kick: (tunnel: Listed) => void }) {
  const label = `Kick the tunnel to ${shown(tunnel.destination)}, dial ${shown(tunnel.dialId, 20)}`;
  return (
    <button type="button" aria-label={label} onClick={() => kick(tunnel)}>
      Kick …
    </button>
  );
}

function kicking({ at, dialId, destination, caller, agentId }: Listed) {
  const about = (
    <p>
      Ends the tunnel of dial {shown(dialId)} from {shown(caller) || 'an unknown caller'} to {shown(destination)}{' '}
      through agent {shown(agentId)} at once. Both sides see a reset.
    </p>
  );
  const run = async (reason: string) => {
    const { tunnels } = await act(at, 'Kick', { dialId, reason });
    return `Ended ${plural(tunnels > 0 ? 1 : 0, 'tunnel')} to ${shown(destination)}`;
  };
  return { title: 'Kick this tunnel?', about, word: 'Kick', reason: 'wanted' as const, run };
}

import { age, plural } from '@isthmus/findings';
import { Role } from '@isthmus/proto/admin-enums';
import { useMemo, useRef, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { type Rate, TunnelRates } from '../model/dials.ts';
import { askAll, consoleOf, frontsOf, hrefOf, type Seen, selfOf, type Told } from '../model/plane.ts';
import { bytes, shown } from '../model/text.ts';
import { useAddressed, useAsked } from '../parts/follow.ts';
import { type Column, MemberChoice, Silent, Table } from '../parts/table.tsx';
import { Name } from '../parts/text.tsx';
import { act, read, reasonOf, type Tunnel } from '../rpc.ts';
import type { ViewProps } from './view.ts';

const SORTS = ['oldest', 'newest', 'most bytes', 'fastest'] as const;
type Sort = (typeof SORTS)[number];

/** The tunnels of all gateways, or of one: who, where to, through what, how much. */
export function TunnelsView({ plane, ask, path }: ViewProps & { readonly path: readonly string[] }) {
  const [wanted = '', asked = ''] = path;
  const fronts = frontsOf(plane);
  const self = selfOf(plane);
  // A hub lists what runs through it, and only its own page ends that there.
  const sources = self && !fronts.includes(self) ? [self, ...fronts] : fronts;
  const [text, find] = useAddressed('tunnels', wanted, asked);
  const choose = (id: string) => location.replace(hrefOf('tunnels', text, id));
  const [sort, setSort] = useState<Sort>('oldest');
  const one = sources.filter(({ id }) => id === asked);
  const members = one.length > 0 ? one : fronts;
  const rates = useRef(new TunnelRates());
  const list = async () => {
    const told = await askAll(members, async ({ id, status }) => {
      const { tunnels } = await read(id, 'ListTunnels', {});
      // An all-in-one server lists a tunnel for each of its roles: the first one knows the caller.
      const [first] = status?.roles ?? [Role.ROLE_GATEWAY];
      return tunnels.filter(({ role }) => role === first);
    });
    rates.current.take(
      told.flatMap(({ answer = [] }) => answer),
      performance.now(),
    );
    return told;
  };
  const { answer, fault } = useAsked(list, CONSOLE.tunnelsMs, `${members.map(({ id }) => id)}`);
  const found = useMemo(() => select(answer ?? [], { text, sort, rates: rates.current }), [answer, text, sort]);
  const kick = (tunnel: Tunnel) => ask(kicking(tunnel));
  return (
    <section aria-labelledby="tunnels">
      <h2 id="tunnels">{plural(found.length, 'tunnel')}</h2>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        <MemberChoice members={sources} all="all gateways" chosen={one[0]?.id ?? ''} choose={choose} />
        <label>
          Find{' '}
          <input
            type="search"
            value={text}
            placeholder="destination, caller, agent, dial"
            onInput={({ currentTarget }) => find(currentTarget.value)}
          />
        </label>
        <label>
          Order{' '}
          <select value={sort} onChange={({ currentTarget }) => setSort(currentTarget.value as Sort)}>
            {SORTS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      </form>
      {fault !== undefined && <p class="fault">{reasonOf(fault)}</p>}
      <Silent told={answer} />
      <p>{resumeText(found)}</p>
      <Table
        title="Tunnels"
        columns={columnsOf(rates.current, kick, found.length > 1)}
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

/** A tunnel, and the member that lists it. */
interface Listed extends Tunnel {
  readonly at: Seen;
}

interface Wanted {
  readonly text: string;
  readonly sort: Sort;
  readonly rates: TunnelRates;
}

function select(told: readonly Told<readonly Tunnel[]>[], { text, sort, rates }: Wanted): Listed[] {
  const wanted = text.trim().toLowerCase();
  const tunnels = told.flatMap(({ member: at, answer = [] }) => answer.map((tunnel) => ({ ...tunnel, at })));
  const found = tunnels.filter(({ destination, caller, agentId, tenant, dialId }) =>
    [destination, caller, agentId, tenant, dialId].some((name) => name.toLowerCase().includes(wanted)),
  );
  const speed = (tunnel: Tunnel) => {
    const { up, down } = rates.of(tunnel) ?? { up: 0, down: 0 };
    return up + down;
  };
  const volume = ({ bytesUp, bytesDown }: Tunnel) => bytesUp + bytesDown;
  const by: Readonly<Record<Sort, (a: Tunnel, b: Tunnel) => number>> = {
    oldest: (a, b) => a.sinceMs - b.sinceMs,
    newest: (a, b) => b.sinceMs - a.sinceMs,
    'most bytes': (a, b) => volume(b) - volume(a),
    fastest: (a, b) => speed(b) - speed(a),
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
function columnsOf(rates: TunnelRates, kick: (tunnel: Tunnel) => void, brief: boolean): readonly Column<Listed>[] {
  const in1 = brief ? { line: 1 as const } : {};
  const in2 = brief ? { line: 2 as const } : {};
  const speed = (tunnel: Tunnel, way: keyof Rate) => {
    const rate = rates.of(tunnel);
    return rate ? `${bytes(rate[way])}/s` : '–';
  };
  return [
    { name: 'Destination', ...in1, of: ({ destination }) => <Name text={destination} /> },
    { name: 'Caller', of: ({ caller }) => <Name text={caller} /> },
    { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
    { name: 'Agent', ...in2, of: ({ agentId }) => <Name text={agentId} /> },
    { name: 'Hub', of: ({ hubId }) => <Name text={hubId} /> },
    { name: 'State', ...in1, of: stateOf },
    { name: 'Moves', right: true, of: ({ resume }) => resume?.moves ?? '' },
    { name: 'Age', ...in1, right: true, of: ({ ageMs }) => age(ageMs) },
    { name: 'Up', right: true, of: ({ bytesUp }) => bytes(bytesUp) },
    { name: 'Down', right: true, of: ({ bytesDown }) => bytes(bytesDown) },
    { name: 'Up/s', ...in2, right: true, of: (tunnel) => speed(tunnel, 'up') },
    { name: 'Down/s', ...in2, right: true, of: (tunnel) => speed(tunnel, 'down') },
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

/** Ends a tunnel, or leads to the console that can. */
function End({ tunnel, kick }: { readonly tunnel: Listed; readonly kick: (tunnel: Tunnel) => void }) {
  const elsewhere = consoleOf(tunnel.at, 'tunnels');
  if (elsewhere !== undefined) return <a href={elsewhere}>in its console</a>;
  const label = `Kick the tunnel to ${shown(tunnel.destination)}, dial ${shown(tunnel.dialId, 20)}`;
  return (
    <button type="button" aria-label={label} onClick={() => kick(tunnel)}>
      Kick …
    </button>
  );
}

function kicking({ dialId, destination, caller, agentId }: Tunnel) {
  const about = (
    <p>
      Ends the tunnel of dial {shown(dialId)} from {shown(caller) || 'an unknown caller'} to {shown(destination)}{' '}
      through agent {shown(agentId)} at once. Both sides see a reset.
    </p>
  );
  const run = async (reason: string) => {
    const { tunnels } = await act('Kick', { dialId, reason });
    return `Ended ${plural(tunnels > 0 ? 1 : 0, 'tunnel')} to ${shown(destination)}`;
  };
  return { title: 'Kick this tunnel?', about, word: 'Kick', reason: 'wanted' as const, run };
}

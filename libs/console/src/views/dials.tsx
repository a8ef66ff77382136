import { adviceFor, millis, plural } from '@isthmus/findings';
import { Role } from '@isthmus/proto/admin-enums';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import {
  type AgentDials,
  byAgent,
  dialLine,
  hasFailed,
  isEstablished,
  isRunning,
  ORDERS,
  type Order,
  ordered,
  type SeenDial,
  tookMs,
  traceLink,
} from '../model/dials.ts';
import { gatewaysOf, hrefOf, ownAddress } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { Waterfall } from '../parts/chart.tsx';
import { useDials } from '../parts/follow.ts';
import { Choice, Field } from '../parts/form.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { CopyLine, Name, State, type Tone } from '../parts/text.tsx';
import type { Dial, Settings, Watched } from '../rpc.ts';
import { AgentLink } from './agents.tsx';
import type { ViewProps } from './view.ts';

/** Dials as they happen, at all gateways. */
export function DialsView({ plane, settings, path }: ViewProps) {
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [order, setOrder] = useState<Order>('newest');
  const [paused, pause] = useState(false);
  const [chosen = ''] = path;
  const gateways = gatewaysOf(plane).map(({ id }) => id);
  const sources = gateways.filter((id) => filter.gateway === '' || id === filter.gateway);
  const { feed, faults } = useDials(sources, watchedOf(filter), paused);
  const now = Date.now();
  const dials = ordered(feed.list(), order, filter.agent, now);
  const detail = useMemo(() => dials.find((seen) => seen.dial.dialId === chosen), [dials, chosen]);
  const parked = plane.members.reduce((sum, { status }) => sum + (status?.parkedDials ?? 0), 0);
  if (plane.at > 0 && gateways.length === 0) {
    return <p class="none">No gateway answers: run isthmus watch at one.</p>;
  }
  return (
    <section aria-labelledby="dials">
      <h2 id="dials">Dials, as they happen</h2>
      <DialFilter filter={filter} gateways={gateways} change={setFilter} />
      <fieldset class="choices">
        <legend>Show</legend>
        {ORDERS.map((each) => (
          <label key={each}>
            <input type="radio" name="order" checked={order === each} onChange={() => setOrder(each)} /> {each}
          </label>
        ))}
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>
          {paused ? 'Go on' : 'Pause'}
        </button>
        <span>{plural(parked, 'dial')} parked now</span>
      </fieldset>
      {feed.lost > 0 && (
        <p class="fault">{plural(feed.lost, 'event')} left out: there were more than this page could read.</p>
      )}
      {faults.map(([id, fault]) => (
        <p class="fault" key={id}>
          {id}: {fault}
        </p>
      ))}
      {detail && <DialDetail seen={detail} settings={settings} />}
      {chosen !== '' && !detail && (
        <p class="none">
          Dial {shown(chosen)} is not among those that this page has: gateways tell their last{' '}
          {plural(CONSOLE.recentDials, 'dial')}, and the filter may hide it.
        </p>
      )}
      {order === 'slowest' && <SlowAgents dials={dials} />}
      <Table
        title="Dials"
        columns={columnsOf(now, chosen)}
        rows={dials}
        keyOf={({ member, dial }) => `${member} ${dial.role} ${dial.dialId}`}
        bad={hasFailed}
        selected={({ dial }) => dial.dialId === chosen}
        none={
          feed.size > 0 || filter !== NO_FILTER
            ? 'No dial is like that: widen the filter, or show the newest.'
            : 'No dial yet. They appear here when callers make them; Why can make one.'
        }
        most={CONSOLE.dialRows}
        more={(left) => `${plural(left, 'dial')} more that this page keeps.`}
      />
    </section>
  );
}

/** One dial: where its time went, the line that repeats it, its trace. */
function DialDetail({ seen, settings }: { readonly seen: SeenDial; readonly settings: Settings }) {
  const { member, dial } = seen;
  const trace = traceLink(settings.traceUrl, dial.traceId);
  // Whoever opens a dial far down the list does not see what opens above it.
  const place = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => place.current?.scrollIntoView({ block: 'nearest' }), [dial.dialId]);
  return (
    <aside class="detail" aria-label={`Dial to ${shown(dial.destination)}`}>
      <h3 ref={place}>
        {shown(dial.destination)}, {millis(dial.ms)}
      </h3>
      <p>
        Dial {shown(dial.dialId)} of tenant {shown(dial.tenant)} at {clock(dial.startedMs)}, by{' '}
        {dial.caller === '' ? 'an unknown caller' : shown(dial.caller)}
        {dial.via !== '' && ` (${shown(dial.via)})`}, at gateway {shown(member)}
        {dial.agentId !== '' && `, through agent ${shown(dial.agentId)} at hub ${shown(dial.hubId)}`}.
        {trace !== undefined && (
          <>
            {' '}
            <a href={trace} target="_blank" rel="noopener noreferrer">
              Its trace
            </a>
          </>
        )}
        {trace === undefined && dial.traceId !== '' && ` Trace ${dial.traceId}.`}
      </p>
      {dial.error && (
        <p class="fault">
          {shown(dial.error.code)}: {shown(dial.error.text, 500)}
        </p>
      )}
      {dial.error && <p class="todo">→ {adviceFor(dial.error.code)}</p>}
      <Waterfall phases={dial.phases} failed={dial.error !== undefined} />
      <CopyLine line={dialLine(dial, { address: ownAddress(), gateway: member })} />
      <p class="buttons">
        <a href={hrefOf('why', dial.destination, dial.tenant)}>Why this way?</a>
        {isEstablished(seen) && <a href={hrefOf('tunnels', dial.dialId, member)}>Its tunnel</a>}
        <button type="button" onClick={() => choose('')}>
          Close
        </button>
      </p>
    </aside>
  );
}

/** What an operator types; each is empty for all. */
interface Filter {
  readonly tenant: string;
  readonly destination: string;
  /** Part of its id. */
  readonly agent: string;
  readonly gateway: string;
  readonly failed: boolean;
  /** In milliseconds. */
  readonly slower: string;
}

const NO_FILTER: Filter = { tenant: '', destination: '', agent: '', gateway: '', failed: false, slower: '' };

/** Returns what members are asked for: they leave out the rest, so that rare dials are not lost among many. */
function watchedOf({ tenant, destination, failed, slower }: Filter): Watched {
  const slowerThanMs = Number(slower);
  return {
    role: Role.ROLE_GATEWAY,
    ...(tenant.trim() !== '' && { tenant: tenant.trim() }),
    ...(destination.trim() !== '' && { destination: destination.trim() }),
    ...(failed && { onlyFailed: true }),
    ...(slowerThanMs > 0 && { slowerThanMs }),
  };
}

function DialFilter({
  filter,
  gateways,
  change,
}: {
  readonly filter: Filter;
  readonly gateways: readonly string[];
  readonly change: (filter: Filter) => void;
}) {
  const set = (name: keyof Filter) => (text: string) => change({ ...filter, [name]: text });
  const { tenant, destination, agent, gateway, slower, failed } = filter;
  return (
    <form class="filter" onSubmit={(event) => event.preventDefault()}>
      <Field label="Tenant" value={tenant} entered={set('tenant')} />
      <Field label="Destination" value={destination} entered={set('destination')} placeholder="host or host:port" />
      <Field label="Agent" value={agent} entered={set('agent')} />
      <Choice label="Gateway" all="all" from={gateways} chosen={gateway} choose={set('gateway')} />
      <Field label="Slower than, ms" type="number" min="0" value={slower} entered={set('slower')} />
      <label>
        <input type="checkbox" checked={failed} onChange={() => change({ ...filter, failed: !failed })} /> failed only
      </label>
    </form>
  );
}

const AGENT_COLUMNS: readonly Column<AgentDials>[] = [
  { name: 'Agent', of: ({ agent }) => <AgentLink id={agent} /> },
  { name: 'Tenant', of: ({ tenant }) => <Name text={tenant} /> },
  { name: 'Dials', right: true, of: ({ dials }) => dials.toLocaleString('en') },
  { name: 'Failed', right: true, of: ({ failed }) => failed.toLocaleString('en') },
  { name: 'Half within', right: true, of: ({ halfMs }) => millis(halfMs) },
  { name: 'Slowest', right: true, of: ({ slowestMs }) => millis(slowestMs) },
];

/** Whether it is one agent that is slow, or all: what a single slow dial does not tell. */
function SlowAgents({ dials }: { readonly dials: readonly SeenDial[] }) {
  const agents = byAgent(dials);
  if (agents.length === 0) return null;
  return (
    <>
      <h3>Agents, the slowest first</h3>
      <Table
        title="Slowest agents"
        columns={AGENT_COLUMNS}
        rows={agents}
        keyOf={({ tenant, agent }) => `${tenant}\0${agent}`}
        most={CONSOLE.slowAgents}
        more={(left) => `${plural(left, 'agent')} that are faster.`}
      />
      <h3>Dials, the slowest first</h3>
    </>
  );
}

/** Opens a dial, which has an address of its own to share. */
function choose(dialId: string): void {
  location.hash = hrefOf('dials', dialId);
}

function resultOf(seen: SeenDial): { tone: Tone; word: string } {
  if (isRunning(seen)) return { tone: 'calm', word: 'dialling' };
  return hasFailed(seen) ? { tone: 'bad', word: 'failed' } : { tone: 'good', word: 'opened' };
}

function columnsOf(now: number, chosen: string): readonly Column<SeenDial>[] {
  const whyOf = ({ dial: { error } }: SeenDial) => error && <Name text={`${error.code}: ${error.text}`} most={300} />;
  return [
    { name: 'Time', line: 1, of: ({ dial }) => clock(dial.startedMs) },
    { name: 'Result', line: 1, of: (seen) => <State {...resultOf(seen)} /> },
    { name: 'Took', line: 1, right: true, of: (seen) => millis(tookMs(seen, now)) },
    { name: 'Destination', line: 2, of: ({ dial }) => <Opener dial={dial} open={dial.dialId === chosen} /> },
    { name: 'Tenant', of: ({ dial }) => <Name text={dial.tenant} /> },
    { name: 'Agent', line: 2, of: ({ dial }) => <Name text={dial.agentId} /> },
    { name: 'Hub', of: ({ dial }) => <Name text={dial.hubId} /> },
    { name: 'Gateway', of: ({ member }) => <Name text={member} /> },
    { name: 'Caller', of: ({ dial }) => <Name text={dial.caller} /> },
    { name: 'Why', line: 1, of: whyOf },
  ];
}

/** A dial's destination: opens and closes its detail. */
function Opener({ dial: { dialId, destination }, open }: { readonly dial: Dial; readonly open: boolean }) {
  return (
    <button type="button" class="row" aria-expanded={open} onClick={() => choose(open ? '' : dialId)}>
      <Name text={destination} />
    </button>
  );
}

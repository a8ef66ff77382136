import { adviceFor } from '@isthmus/findings';
import { Role } from '@isthmus/proto/admin-enums';
import { useMemo, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import {
  dialLine,
  hasFailed,
  isRunning,
  ORDERS,
  type Order,
  ordered,
  type SeenDial,
  tookMs,
  traceLink,
} from '../model/dials.ts';
import { gatewaysOf, ownAddress } from '../model/plane.ts';
import { clock, millis, plural, shown } from '../model/text.ts';
import { Waterfall } from '../parts/chart.tsx';
import { useDials } from '../parts/follow.ts';
import { Table } from '../parts/table.tsx';
import { CopyLine, Name, State } from '../parts/text.tsx';
import type { Settings, Watched } from '../rpc.ts';
import type { ViewProps } from './view.ts';

/** Dials as they happen, at all gateways that this page can ask. */
export function DialsView({ plane, settings }: ViewProps) {
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [order, setOrder] = useState<Order>('newest');
  const [paused, pause] = useState(false);
  const [chosen, choose] = useState('');
  const gateways = gatewaysOf(plane).map(({ id, origin = '' }) => ({ id, origin }));
  const sources = gateways.filter(({ id }) => filter.gateway === '' || id === filter.gateway);
  const { feed, faults } = useDials(sources, watchedOf(filter), paused);
  const now = Date.now();
  const dials = ordered(feed.list(), order, filter.agent, now);
  const detail = useMemo(() => dials.find((seen) => keyOf(seen) === chosen), [dials, chosen]);
  const parked = plane.members.reduce((sum, { status }) => sum + (status?.parkedDials ?? 0), 0);
  if (plane.at > 0 && gateways.length === 0) {
    return <p class="none">No gateway can be asked from here: open the console of one, or run isthmus watch.</p>;
  }
  return (
    <section aria-labelledby="dials">
      <h2 id="dials">Dials, as they happen</h2>
      <DialFilter filter={filter} gateways={gateways.map(({ id }) => id)} change={setFilter} />
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
      {detail && <DialDetail seen={detail} settings={settings} close={() => choose('')} />}
      <Table
        title="Dials"
        columns={COLUMNS}
        rows={dials.slice(0, CONSOLE.dialRows).map((seen) => rowOf(seen, now, chosen, choose))}
        none="No dial yet."
      />
      {dials.length > CONSOLE.dialRows && (
        <p>And {plural(dials.length - CONSOLE.dialRows, 'dial')} more that this page keeps.</p>
      )}
    </section>
  );
}

/** One dial: where its time went, the line that repeats it, its trace. */
function DialDetail({
  seen: { member, dial },
  settings,
  close,
}: {
  readonly seen: SeenDial;
  readonly settings: Settings;
  readonly close: () => void;
}) {
  const trace = traceLink(settings.traceUrl, dial.traceId);
  return (
    <aside class="detail" aria-label={`Dial to ${shown(dial.destination)}`}>
      <h3>
        {shown(dial.destination)}, {millis(dial.ms)}
      </h3>
      <p>
        Dial {shown(dial.dialId)} of tenant {shown(dial.tenant)} at {clock(dial.startedMs)}, by{' '}
        {dial.caller === '' ? 'an unknown caller' : shown(dial.caller)}
        {dial.via !== '' && ` (${shown(dial.via)})`}.
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
        <a href={`#/why/${encodeURIComponent(dial.destination)}/${encodeURIComponent(dial.tenant)}`}>Why this way?</a>
        <button type="button" onClick={close}>
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
  const text = (name: 'tenant' | 'destination' | 'agent') => ({
    value: filter[name],
    onChange: ({ currentTarget }: { readonly currentTarget: HTMLInputElement }) =>
      change({ ...filter, [name]: currentTarget.value }),
  });
  return (
    <form class="filter" onSubmit={(event) => event.preventDefault()}>
      <label>
        Tenant <input {...text('tenant')} />
      </label>
      <label>
        Destination <input {...text('destination')} placeholder="host or host:port" />
      </label>
      <label>
        Agent <input {...text('agent')} />
      </label>
      <label>
        Gateway{' '}
        <select
          value={filter.gateway}
          onChange={({ currentTarget }) => change({ ...filter, gateway: currentTarget.value })}
        >
          <option value="">all</option>
          {gateways.map((id) => (
            <option key={id}>{id}</option>
          ))}
        </select>
      </label>
      <label>
        Slower than, ms{' '}
        <input
          type="number"
          min="0"
          value={filter.slower}
          onChange={({ currentTarget }) => change({ ...filter, slower: currentTarget.value })}
        />
      </label>
      <label>
        <input type="checkbox" checked={filter.failed} onChange={() => change({ ...filter, failed: !filter.failed })} />{' '}
        failed only
      </label>
    </form>
  );
}

const COLUMNS = [
  { name: 'Time' },
  { name: 'Result' },
  { name: 'Took', right: true },
  { name: 'Destination' },
  { name: 'Tenant' },
  { name: 'Agent' },
  { name: 'Hub' },
  { name: 'Gateway' },
  { name: 'Caller' },
  { name: 'Why' },
];

function keyOf({ member, dial }: SeenDial): string {
  return `${member} ${dial.role} ${dial.dialId}`;
}

function rowOf(seen: SeenDial, now: number, chosen: string, choose: (key: string) => void) {
  const { member, dial } = seen;
  const key = keyOf(seen);
  const failed = hasFailed(seen);
  const state = isRunning(seen) ? (
    <State tone="calm" word="dialling" />
  ) : (
    <State tone={failed ? 'bad' : 'good'} word={failed ? 'failed' : 'open'} />
  );
  return {
    key,
    bad: failed,
    selected: key === chosen,
    cells: [
      clock(dial.startedMs),
      state,
      millis(tookMs(seen, now)),
      <button
        key="destination"
        type="button"
        class="row"
        aria-expanded={key === chosen}
        onClick={() => choose(key === chosen ? '' : key)}
      >
        <Name text={dial.destination} />
      </button>,
      <Name key="tenant" text={dial.tenant} />,
      <Name key="agent" text={dial.agentId} />,
      <Name key="hub" text={dial.hubId} />,
      <Name key="gateway" text={member} />,
      <Name key="caller" text={dial.caller} />,
      dial.error ? <Name key="error" text={`${dial.error.code}: ${dial.error.text}`} most={300} /> : '',
    ],
  };
}

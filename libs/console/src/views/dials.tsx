import { useMemo, useState } from 'preact/hooks';
import { hasFailed, ORDERS, type Order, ordered, tookMs } from '../model/dials.ts';
import { isRunning, type SeenDial } from '../model/feed.ts';
import { gatewaysOf } from '../model/plane.ts';
import { clock, millis, plural } from '../model/text.ts';
import { Name } from '../parts/name.tsx';
import { State } from '../parts/state.tsx';
import { Table } from '../parts/table.tsx';
import { useDials } from '../parts/use-dials.ts';
import { DialDetail } from './dial-detail.tsx';
import { DialFilter, type Filter, NO_FILTER, watchedOf } from './dial-filter.tsx';
import type { ViewProps } from './view.ts';

/** Rows of the table: more slow the page down, and nobody reads them. */
const ROWS = 100;

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
        rows={dials.slice(0, ROWS).map((seen) => rowOf(seen, now, chosen, choose))}
        none="No dial yet."
      />
      {dials.length > ROWS && <p>And {plural(dials.length - ROWS, 'dial')} more that this page keeps.</p>}
    </section>
  );
}

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

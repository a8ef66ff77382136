import { useMemo, useState } from 'preact/hooks';
import { CONSOLE } from '../defaults.ts';
import { clock, millis, shown } from '../model/text.ts';
import { Chart, type Line } from '../parts/chart.tsx';
import { useAsked } from '../parts/follow.ts';
import { MemberChoice, Table } from '../parts/table.tsx';
import { type History, read, reasonOf } from '../rpc.ts';
import type { ViewProps } from './view.ts';

const COLUMNS = [
  { name: 'Minute' },
  { name: 'Dials', right: true },
  { name: 'Failures', right: true },
  { name: 'Slowest p50', right: true },
  { name: 'Slowest p99', right: true },
  { name: 'Sessions', right: true },
  { name: 'Tunnels', right: true },
];

/** The last hour of one member, from its own memory. */
export function TimeView({ plane, settings }: ViewProps) {
  const sources = plane.members.filter(({ status }) => status !== undefined);
  const [chosen, choose] = useState('');
  const [tenant, setTenant] = useState(settings.tenant);
  const source = sources.find(({ id }) => id === chosen) ?? sources.find(({ self }) => self);
  const ask = () => read(source?.origin ?? '', 'GetHistory', tenant === '' ? {} : { tenant });
  const { answer, fault } = useAsked(ask, CONSOLE.slowLookMs, `${source?.id} ${tenant}`);
  return (
    <section aria-labelledby="time">
      <h2 id="time">The last hour</h2>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        <MemberChoice members={sources} chosen={source?.id} choose={choose} />
        <label>
          Tenant{' '}
          <input
            value={tenant}
            placeholder="all"
            onChange={({ currentTarget }) => setTenant(currentTarget.value.trim())}
          />
        </label>
      </form>
      {fault !== undefined && <p class="fault">{shown(reasonOf(fault), 300)}</p>}
      {answer &&
        (answer.slots.length === 0 ? (
          <p class="none">No dial of this tenant in the last hour.</p>
        ) : (
          <Charts history={answer} />
        ))}
    </section>
  );
}

function Charts({ history: { slots, slotMs } }: { readonly history: History }) {
  const { seconds, rates, latencies, counts } = useMemo(() => {
    const perSecond = 1000 / slotMs;
    const line = (label: string, colour: string, values: Line['values']): Line => ({ label, colour, values });
    return {
      seconds: slots.map(({ startMs }) => startMs / 1000),
      rates: [
        line(
          'dials',
          '--accent',
          slots.map(({ dials }) => round(dials * perSecond)),
        ),
        line(
          'failures',
          '--bad',
          slots.map(({ failures }) => round(failures * perSecond)),
        ),
      ],
      latencies: [
        line(
          'p50',
          '--accent',
          slots.map(({ p50Ms }) => round(p50Ms)),
        ),
        line(
          'p99',
          '--warn',
          slots.map(({ p99Ms }) => round(p99Ms)),
        ),
      ],
      counts: [
        line(
          'sessions',
          '--accent',
          slots.map(({ sessions }) => sessions ?? null),
        ),
        line(
          'tunnels',
          '--good',
          slots.map(({ tunnels }) => tunnels ?? null),
        ),
      ],
    };
  }, [slots, slotMs]);
  const sampled = slots.some(({ sessions }) => sessions !== undefined);
  return (
    <>
      <div class="charts">
        <Chart title="Dials and failures a second" seconds={seconds} lines={rates} unit="/s" />
        <Chart title="Time to the answer" seconds={seconds} lines={latencies} unit="ms" />
        {sampled && <Chart title="Sessions and tunnels" seconds={seconds} lines={counts} unit="" />}
      </div>
      <details>
        <summary>The same as a table, by the minute</summary>
        <Table title="The last hour by the minute" columns={COLUMNS} rows={minutesOf(slots)} none="Nothing yet." />
      </details>
    </>
  );
}

function round(value: number | undefined): number | null {
  return value === undefined ? null : Math.round(value * 100) / 100;
}

/** The newest first. */
function minutesOf(slots: History['slots']) {
  const minutes = new Map<number, History['slots'][number][]>();
  for (const slot of slots) {
    const minute = Math.floor(slot.startMs / 60_000) * 60_000;
    minutes.set(minute, [...(minutes.get(minute) ?? []), slot]);
  }
  return [...minutes].reverse().map(([minute, own]) => {
    const sum = (of: 'dials' | 'failures') => own.reduce((total, slot) => total + slot[of], 0).toLocaleString('en');
    const most = (of: 'p50Ms' | 'p99Ms') => {
      const known = own.map((slot) => slot[of]).filter((value) => value !== undefined);
      return millis(known.length === 0 ? undefined : Math.max(...known));
    };
    const { sessions, tunnels } = own.findLast((slot) => slot.sessions !== undefined) ?? {};
    return {
      key: `${minute}`,
      cells: [
        clock(minute),
        sum('dials'),
        sum('failures'),
        most('p50Ms'),
        most('p99Ms'),
        sessions ?? '–',
        tunnels ?? '–',
      ],
    };
  });
}

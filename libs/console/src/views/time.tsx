import { age, millis } from '@isthmus/findings';
import { useMemo, useState } from 'preact/hooks';
import { finished, minutesOf, together } from '../model/history.ts';
import { frontsOf } from '../model/plane.ts';
import { clock, shown } from '../model/text.ts';
import { Chart, type Line } from '../parts/chart.tsx';
import { useHistories } from '../parts/follow.ts';
import { Field, MemberChoice } from '../parts/form.tsx';
import { type Column, Silent, Table } from '../parts/table.tsx';
import { type History, reasonOf } from '../rpc.ts';
import { Cuts } from './cuts.tsx';
import type { ViewProps } from './view.ts';

type Slot = History['slots'][number];

const COLUMNS: readonly Column<Slot>[] = [
  { name: 'Minute', of: ({ startMs }) => clock(startMs) },
  { name: 'Dials', right: true, of: ({ dials }) => dials.toLocaleString('en') },
  { name: 'Failures', right: true, of: ({ failures }) => failures.toLocaleString('en') },
  { name: 'Slowest p50', right: true, of: ({ p50Ms }) => millis(p50Ms) },
  { name: 'Slowest p99', right: true, of: ({ p99Ms }) => millis(p99Ms) },
  { name: 'Sessions', right: true, of: ({ sessions }) => sessions ?? '–' },
  { name: 'Tunnels', right: true, of: ({ tunnels }) => tunnels ?? '–' },
];

/** The last hour of all gateways together, or of one member, from their own memory. */
export function TimeView({ plane, settings }: ViewProps) {
  const sources = plane.members.filter(({ status }) => status !== undefined);
  const [chosen, choose] = useState('');
  const [tenant, setTenant] = useState(settings.tenant);
  const one = sources.filter(({ id }) => id === chosen);
  const { answer, fault } = useHistories(one.length > 0 ? one : frontsOf(plane), tenant);
  const known = useMemo(() => answer && together(answer.flatMap((told) => told.answer ?? [])), [answer]);
  // Whoever comes because something was cut does not look for it below the charts.
  const cut = answer?.some((told) => (told.answer?.cuts.length ?? 0) > 0) ?? false;
  return (
    <section aria-labelledby="time">
      <h2 id="time">The last hour</h2>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        <MemberChoice members={sources} all="all gateways" chosen={one[0]?.id ?? ''} choose={choose} />
        <Field label="Tenant" value={tenant} placeholder="all" entered={(text) => setTenant(text.trim())} />
      </form>
      {fault !== undefined && <p class="fault">{shown(reasonOf(fault), 300)}</p>}
      <Silent told={answer} />
      {answer && cut && <Cuts told={answer} traceUrl={settings.traceUrl} />}
      {known &&
        (known.slots.length === 0 ? (
          <p class="none">No dial of this tenant in the last hour here: choose another member, or clear the tenant.</p>
        ) : (
          <Charts history={known} />
        ))}
      {answer && !cut && <Cuts told={answer} traceUrl={settings.traceUrl} />}
    </section>
  );
}

function Charts({ history: { slots: all, slotMs } }: { readonly history: ReturnType<typeof together> }) {
  const { slots, seconds, rates, latencies, counts } = useMemo(() => {
    const slots = finished(all);
    const line = (label: string, colour: string, of: (slot: Slot) => number | undefined): Line => {
      return { label, colour, values: slots.map((slot) => round(of(slot))) };
    };
    const perSecond = (count: number) => (count * 1000) / slotMs;
    return {
      slots,
      seconds: slots.map(({ startMs }) => startMs / 1000),
      rates: [
        line('dials', '--accent', ({ dials }) => perSecond(dials)),
        line('failures', '--bad', ({ failures }) => perSecond(failures)),
      ],
      latencies: [line('p50', '--accent', ({ p50Ms }) => p50Ms), line('p99', '--second', ({ p99Ms }) => p99Ms)],
      counts: [
        line('sessions', '--accent', ({ sessions }) => sessions),
        line('tunnels', '--second', ({ tunnels }) => tunnels),
      ],
    };
  }, [all, slotMs]);
  const [first] = slots;
  const last = slots.at(-1);
  const sampled = slots.some(({ sessions }) => sessions !== undefined);
  return (
    <>
      {first && last ? (
        <p>
          From {clock(first.startMs)} to {clock(last.startMs + slotMs)}, by {age(slotMs)}.
        </p>
      ) : (
        <p class="none">Charts begin when the first {age(slotMs)} are over.</p>
      )}
      <div class="charts">
        <Chart title="Dials and failures a second" seconds={seconds} lines={rates} unit="/s" />
        <Chart title="Time to the answer" seconds={seconds} lines={latencies} unit="ms" />
        {sampled && <Chart title="Sessions and tunnels" seconds={seconds} lines={counts} unit="" />}
      </div>
      <details>
        <summary>The same as a table, by the minute</summary>
        <Table
          title="The last hour by the minute"
          columns={COLUMNS}
          rows={minutesOf(all)}
          keyOf={({ startMs }) => `${startMs}`}
          none="Nothing yet."
        />
      </details>
    </>
  );
}

function round(value: number | undefined): number | null {
  return value === undefined ? null : Math.round(value * 100) / 100;
}

import { millis } from '@isthmus/findings';
import { useEffect, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import { lonePoints } from '../model/history.ts';
import { clock, shown } from '../model/text.ts';
import type { Phase } from '../rpc.ts';

export interface Line {
  readonly label: string;
  /** A variable of the style sheet: `--good`. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

interface ChartProps {
  readonly title: string;
  /** Since the epoch. */
  readonly seconds: readonly number[];
  readonly lines: readonly Line[];
  readonly unit: string;
}

/** Of a chart, in characters of the page, which are larger on a wall. */
const HEIGHT = 16;

/** Of a value without neighbours, across, in pixels. */
const POINT = 5;

function characterPx(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
}

const DARK = matchMedia('(prefers-color-scheme: dark)');

/** A chart over time. A screen reader gets its last values; the table of the view has all. */
export function Chart({ title, seconds, lines, unit }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | undefined>(undefined);
  const names = lines.map(({ label }) => label).join();
  const dark = useDark();
  // New values go into the chart that is there, below.
  useEffect(() => {
    const { current } = place;
    if (!current) return undefined;
    const made = new UPlot(optionsOf(current, lines, unit), dataOf(seconds, lines), current);
    plot.current = made;
    const fit = new ResizeObserver(() => made.setSize({ width: current.clientWidth, height: HEIGHT * characterPx() }));
    fit.observe(current);
    return () => {
      fit.disconnect();
      made.destroy();
    };
  }, [names, unit, dark]);
  useEffect(() => plot.current?.setData(dataOf(seconds, lines)), [seconds, lines]);
  const last = lines.map(({ label, values }) => `${label} ${values.at(-1) ?? 'none'} ${unit}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={place} role="img" aria-label={`${title}, last: ${last}`} />
    </figure>
  );
}

/** A canvas has no style sheet, so a chart is drawn anew when the colours change. */
function useDark(): boolean {
  const [dark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const changed = () => setDark(DARK.matches);
    DARK.addEventListener('change', changed);
    return () => DARK.removeEventListener('change', changed);
  }, []);
  return dark;
}

function dataOf(seconds: readonly number[], lines: readonly Line[]): UPlot.AlignedData {
  return [[...seconds], ...lines.map(({ values }) => [...values])];
}

function optionsOf(place: HTMLElement, lines: readonly Line[], unit: string): UPlot.Options {
  const style = getComputedStyle(place);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const px = characterPx();
  const axis = {
    font: `${Math.round(0.85 * px)}px system-ui, sans-serif`,
    stroke: colour('--text'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line') },
  };
  return {
    width: place.clientWidth,
    height: HEIGHT * px,
    // Half of the last time stands right of the chart.
    padding: [px, 2.5 * px, 0, 0],
    series: [
      { label: 'Time', value: (_plot: UPlot, at: number | null) => (at === null ? '–' : clock(at * 1000)) },
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 2,
        spanGaps: false,
        points: {
          show: false,
          size: POINT,
          fill: colour(line.colour),
          filter: (plot: UPlot, at: number) => lonePoints([...(plot.data[at] ?? [])]),
        },
      })),
    ],
    axes: [
      {
        ...axis,
        values: (_plot: UPlot, marks: number[]) => marks.map((mark) => clock(mark * 1000)),
        space: 6 * px,
        size: 3 * px,
      },
      {
        ...axis,
        // As wide as its longest number, with its tick and gap.
        size: (plot: UPlot, texts: string[] | null) => {
          const { font } = plot.ctx;
          plot.ctx.font = axis.font;
          const widths = (texts ?? []).map((text) => plot.ctx.measureText(text).width);
          plot.ctx.font = font;
          return Math.max(2 * px, ...widths) + 1.5 * px;
        },
        values: (_plot: UPlot, marks: number[]) => marks.map((mark) => `${mark.toLocaleString('en')} ${unit}`.trim()),
      },
    ],
    scales: { y: { range: (_plot: UPlot, _min: number, max: number) => [0, Math.max(max * 1.1, 1)] } },
  };
}

const WORDS: Readonly<Record<string, string>> = { park: 'parked', dns: 'DNS', first_byte: 'first byte' };
const ROW = 26;
const LABEL = 150;
const WIDTH = 800;
/** A phase of a microsecond is still a line. */
const THINNEST = 2;

/** Where the time of a dial went: a bar for each phase, as `isthmus dial` draws it. The list below says the same. */
export function Waterfall({ phases, failed }: { readonly phases: readonly Phase[]; readonly failed: boolean }) {
  if (phases.length === 0) return <p class="none">Where its time went is known when it has ended.</p>;
  const end = Math.max(...phases.map(({ startMs, ms }) => startMs + ms), 0.001);
  const scale = (WIDTH - LABEL - 90) / end;
  return (
    <figure>
      <svg
        viewBox={`0 0 ${WIDTH} ${phases.length * ROW}`}
        role="img"
        aria-label={`Phases of the dial, ${millis(end)} in all`}
      >
        {phases.map(({ name, depth, startMs, ms }, index) => {
          const x = LABEL + startMs * scale;
          const width = Math.max(ms * scale, THINNEST);
          return (
            <g key={`${name} ${startMs} ${index}`} transform={`translate(0 ${index * ROW})`}>
              <text x={depth * 12} y={17}>
                {wordFor(name)}
              </text>
              <rect class={`phase ${failed ? 'failed' : name}`} x={x} y={5} width={width} height={ROW - 10} rx={2} />
              <text x={x + width + 6} y={17}>
                {millis(ms)}
              </text>
            </g>
          );
        })}
      </svg>
      <figcaption>
        <ol>
          {phases.map(({ name, startMs, ms, detail }, index) => (
            <li key={`${name} ${startMs} ${index}`}>
              <b>{wordFor(name)}</b> {millis(ms)}, from {millis(startMs)}
              {detail !== '' && `: ${shown(detail, 300)}`}
            </li>
          ))}
        </ol>
      </figcaption>
    </figure>
  );
}

function wordFor(name: string): string {
  return WORDS[name] ?? name;
}

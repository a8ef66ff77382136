import { millis, shown } from '../model/text.ts';
import type { Phase } from '../rpc/messages.ts';

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
    <figure class="waterfall">
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

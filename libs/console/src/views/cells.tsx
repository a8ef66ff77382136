import { useEffect, useRef, useState } from 'preact/hooks';
import { type Agent, type Group, STATES } from '../model/agents.ts';
import { plural, shown } from '../model/text.ts';

/** Sides of a cell with its gap, in pixels, by how many there are. */
function sideFor(count: number): number {
  if (count <= 200) return 16;
  return count <= 2000 ? 10 : 7;
}

/** One group of agents as cells on a canvas: 10,000 elements would be slow in every browser. */
export function Cells({ group }: { readonly group: Group }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [under, setUnder] = useState<Agent>();
  const { tenant, zones, agents, counts } = group;
  const side = sideFor(agents.length);
  const columns = Math.max(1, Math.floor(width / side));
  const height = Math.ceil(agents.length / columns) * side;
  useEffect(() => {
    const place = canvas.current?.parentElement;
    if (!place) return undefined;
    const fit = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    fit.observe(place);
    return () => fit.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, agents, { width, height, side, columns });
  }, [agents, width, height, side, columns]);
  const point = ({ offsetX, offsetY }: { readonly offsetX: number; readonly offsetY: number }) => {
    const column = Math.floor(offsetX / side);
    setUnder(column < columns ? agents[Math.floor(offsetY / side) * columns + column] : undefined);
  };
  const unwell = STATES.filter((state) => state !== 'well' && counts[state] > 0).map(
    (state) => `${counts[state]} ${state}`,
  );
  const words = [plural(agents.length, 'agent'), ...unwell].join(', ');
  return (
    <figure class={`cells ${unwell.length > 0 ? 'warn' : ''}`}>
      <figcaption>
        <b>{shown(tenant, 40)}</b>
        {zones !== '' && `, zone ${shown(zones, 40)}`}: {words}
      </figcaption>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Tenant ${shown(tenant, 40)}: ${words}`}
        onPointerMove={point}
        onPointerLeave={() => setUnder(undefined)}
      />
      <div class="under" aria-hidden="true">
        {under ? `${shown(under.id, 40)}: ${under.state}, ${plural(under.tunnels, 'tunnel')}` : ' '}
      </div>
    </figure>
  );
}

interface Place {
  readonly width: number;
  readonly height: number;
  readonly side: number;
  readonly columns: number;
}

function draw(canvas: HTMLCanvasElement, agents: readonly Agent[], { width, height, side, columns }: Place): void {
  const ratio = devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (!context) return;
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const colours = Object.fromEntries(STATES.map((state) => [state, style.getPropertyValue(`--${state}`).trim()]));
  for (const [index, { state }] of agents.entries()) {
    context.fillStyle = colours[state] ?? '';
    const [x, y] = [(index % columns) * side, Math.floor(index / columns) * side];
    context.fillRect(x, y, side - 1, side - 1);
    // A notch tells states apart without colour.
    if (state !== 'well') context.clearRect(x + side / 3, y + side / 3, side / 3, side / 3);
  }
}

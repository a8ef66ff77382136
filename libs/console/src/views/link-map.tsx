import { millis, plural } from '@isthmus/findings';
import { Hub_Link, Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { lostOf } from '../model/findings.ts';
import { placeLabels } from '../model/labels.ts';
import { type Health, healthOf, healthOfHub, type Plane, type Seen } from '../model/plane.ts';
import { short, shown } from '../model/text.ts';
import { type Column, Table } from '../parts/table.tsx';
import type { Hub } from '../rpc.ts';

const { LINK_DOWN, LINK_UP, LINK_OWN } = Hub_Link;

const WIDTH = 1000;
const NODE = { width: 150, height: 46 };
const TOP = 8;
const BOTTOM = 170;
/** Of a label, in the picture's units: its font is of 14. */
const LABEL = { character: 8, height: 16, gap: 3 };

/** Gateways above, hubs below, and a line for each link: red and broken if it is down, wider with its load. Lost ones stay, without links. */
export function LinkMap({ plane }: { readonly plane: Plane }) {
  const gateways = plane.members.filter(({ roles, list }) => roles.includes('gateway') && list !== undefined);
  const lostIds = (role: Role) => lostOf(plane, role).map(({ id }) => id);
  const lost = { gateways: lostIds(Role.ROLE_GATEWAY), hubs: lostIds(Role.ROLE_HUB) };
  const none = gateways.length === 0 || plane.hubs.length === 0;
  if (none && lost.gateways.length + lost.hubs.length === 0) return null;
  const few = gateways.length <= CONSOLE.membersDrawn && plane.hubs.length <= CONSOLE.membersDrawn;
  return (
    <>
      {few && <Picture plane={plane} gateways={gateways} lost={lost} />}
      <details open={!few}>
        <summary>{few ? 'The same as a table' : 'Links, as a table'}</summary>
        <Matrix plane={plane} gateways={gateways} />
      </details>
    </>
  );
}

interface Props {
  readonly plane: Plane;
  readonly gateways: readonly Seen[];
}

interface PictureProps extends Props {
  /** Ids. */
  readonly lost: { readonly gateways: readonly string[]; readonly hubs: readonly string[] };
}

function Picture({ plane, gateways, lost }: PictureProps) {
  const middleOf = (index: number, of: number) => ((index + 0.5) * WIDTH) / of;
  const above = withLost(
    gateways.map((gateway) => ({ name: gateway.id, zone: gateway.zone, health: healthOf(gateway, plane) })),
    lost.gateways,
  );
  const below = withLost(
    plane.hubs.map((hub) => ({ name: hub.hubId, zone: hub.zone, health: healthOfHub(hub, plane) })),
    lost.hubs,
  );
  const links = gateways.flatMap((gateway, from) =>
    plane.hubs.flatMap((hub, to) => {
      const link = linkOf(gateway, hub);
      const [x1, x2] = [middleOf(from, above.length), middleOf(to, below.length)];
      const line = { x1, y1: TOP + NODE.height, x2, y2: BOTTOM };
      return link ? [{ key: `${gateway.id} ${hub.hubId}`, link, line }] : [];
    }),
  );
  const labels = placeLabels(
    links.map(({ line }) => line),
    links.map(({ link }) => {
      const width = shortLink(link).length * LABEL.character;
      return { width, height: LABEL.height, gap: LABEL.gap + thickness(link) / 2 };
    }),
  );
  return (
    <figure class="links">
      <svg
        class="links"
        viewBox={`0 0 ${WIDTH} ${BOTTOM + NODE.height + 8}`}
        role="img"
        aria-label="Links from gateways to hubs; the table and the findings say the same"
      >
        {links.map(({ key, link, line }) => (
          <g key={key} class={`link ${styleOf(link)}`}>
            <line {...line} stroke-width={thickness(link)} />
          </g>
        ))}
        {links.map(({ key, link }, index) => (
          <g key={key} class={`link ${styleOf(link)}`}>
            <text {...labels[index]}>{shortLink(link)}</text>
          </g>
        ))}
        {above.map((drawn, index) => (
          <Node key={drawn.name} x={middleOf(index, above.length)} y={TOP} {...drawn} />
        ))}
        {below.map((drawn, index) => (
          <Node key={drawn.name} x={middleOf(index, below.length)} y={BOTTOM} {...drawn} />
        ))}
      </svg>
      <figcaption>
        A line is a link: its number is the round trip, and it is thicker the more tunnels it carries.
      </figcaption>
    </figure>
  );
}

/** A gateway or hub in the picture. */
interface Drawn {
  readonly name: string;
  readonly zone: string;
  readonly health: Health;
}

/** Adds those that are lost, as far as there is room. */
function withLost(drawn: readonly Drawn[], lost: readonly string[]): Drawn[] {
  const ghosts = lost.slice(0, CONSOLE.membersDrawn - drawn.length);
  return [...drawn, ...ghosts.map((name): Drawn => ({ name, zone: '', health: 'lost' }))];
}

interface NodeProps extends Drawn {
  readonly x: number;
  readonly y: number;
}

function Node({ x, y, name, zone, health }: NodeProps) {
  return (
    <g class={`node ${health}`} transform={`translate(${x - NODE.width / 2} ${y})`}>
      <rect width={NODE.width} height={NODE.height} rx={6} />
      <text x={NODE.width / 2} y={19}>
        {short(name, 18)}
      </text>
      <text x={NODE.width / 2} y={37} class="small">
        {health}
        {zone !== '' && `, zone ${short(zone, 10)}`}
      </text>
    </g>
  );
}

function Matrix({ plane, gateways }: Props) {
  const links = plane.hubs.map((hub): Column<Seen> => {
    const of = (gateway: Seen) => {
      const link = linkOf(gateway, hub);
      return link ? longLink(link) : 'not known';
    };
    return { name: shown(hub.hubId, 40), of };
  });
  return (
    <Table
      title="Links from gateways to hubs"
      columns={[{ name: 'Gateway', of: ({ id }) => <b>{shown(id, 40)}</b> }, ...links]}
      rows={gateways}
      keyOf={({ id }) => id}
      bad={({ list }) => list?.hubs.some(({ link }) => link === LINK_DOWN) ?? false}
    />
  );
}

function linkOf({ list }: Seen, { hubId }: Hub): Hub | undefined {
  return list?.hubs.find((hub) => hub.hubId === hubId);
}

function styleOf({ link }: Hub): string {
  return link === LINK_DOWN ? 'down' : 'up';
}

function thickness({ tunnels }: Hub): number {
  return 1.5 + Math.log2(1 + tunnels);
}

function shortLink({ link, rttMs }: Hub): string {
  if (link === LINK_DOWN) return '■ down';
  return link === LINK_UP ? millis(rttMs) : '';
}

function longLink({ link, rttMs, tunnels }: Hub): string {
  if (link === LINK_DOWN) return '■ down';
  const load = plural(tunnels, 'tunnel');
  if (link === LINK_OWN) return `● in the same process, ${load}`;
  return link === LINK_UP ? `● up, ${millis(rttMs)}, ${load}` : '○ none wanted';
}

import { millis, plural } from '@isthmus/findings';
import { Hub_Link, Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { lostOf } from '../model/findings.ts';
import { type Health, healthOf, healthOfHub, type Plane, type Seen } from '../model/plane.ts';
import { short, shown } from '../model/text.ts';
import { type Column, Table } from '../parts/table.tsx';
import type { Hub } from '../rpc.ts';

const { LINK_DOWN, LINK_UP, LINK_OWN } = Hub_Link;

const WIDTH = 1000;
const NODE = { width: 150, height: 46 };
const TOP = 8;
const BOTTOM = 150;

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
  const placeOf = (index: number, of: number) => ((index + 0.5) * WIDTH) / of;
  const above = withLost(
    gateways.map((gateway) => ({ name: gateway.id, zone: gateway.zone, health: healthOf(gateway, plane) })),
    lost.gateways,
  );
  const below = withLost(
    plane.hubs.map((hub) => ({ name: hub.hubId, zone: hub.zone, health: healthOfHub(hub, plane) })),
    lost.hubs,
  );
  return (
    <svg
      class="links"
      viewBox={`0 0 ${WIDTH} ${BOTTOM + NODE.height + 8}`}
      role="img"
      aria-label="Links from gateways to hubs; the table and the findings say the same"
    >
      {gateways.flatMap((gateway, from) =>
        plane.hubs.map((hub, to) => {
          const link = linkOf(gateway, hub);
          if (!link) return null;
          const [x1, x2] = [placeOf(from, above.length), placeOf(to, below.length)];
          const [y1, y2] = [TOP + NODE.height, BOTTOM];
          // A label near the gateway's end: in the middle, lines cross.
          const [x, y] = [x1 + (x2 - x1) * 0.3, y1 + (y2 - y1) * 0.3];
          return (
            <g key={`${gateway.id} ${hub.hubId}`} class={`link ${link.link === LINK_DOWN ? 'down' : 'up'}`}>
              <line x1={x1} y1={y1} x2={x2} y2={y2} stroke-width={1.5 + Math.log2(1 + link.tunnels)} />
              <text x={x} y={y}>
                {shortLink(link)}
              </text>
            </g>
          );
        }),
      )}
      {above.map((drawn, index) => (
        <Node key={drawn.name} x={placeOf(index, above.length)} y={TOP} {...drawn} />
      ))}
      {below.map((drawn, index) => (
        <Node key={drawn.name} x={placeOf(index, below.length)} y={BOTTOM} {...drawn} />
      ))}
    </svg>
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

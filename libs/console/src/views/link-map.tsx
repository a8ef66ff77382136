import { millis, plural } from '@isthmus/findings';
import { Hub_Link, Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import { lostOf } from '../model/findings.ts';
import { healthOf, type Plane, type Seen } from '../model/plane.ts';
import { short, shown } from '../model/text.ts';
import { Drawing } from '../parts/drawing.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { TONES } from '../parts/text.tsx';
import type { Hub } from '../rpc.ts';

const { LINK_DOWN, LINK_UP, LINK_OWN } = Hub_Link;

const WIDTH = 1000;
const NODE = { width: 150, height: 46 };
const TOP = 8;
const BOTTOM = 170;

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
  const above = rowOf(plane, gateways, lost.gateways);
  const below = rowOf(
    plane,
    plane.hubs.map(({ hubId: id, zone }) => ({ id, zone })),
    lost.hubs,
  );
  const ways = gateways.flatMap((gateway, from) =>
    plane.hubs.flatMap((hub, to) => {
      const link = linkOf(gateway, hub);
      if (!link) return [];
      const [x1, x2] = [middleOf(from, above.length), middleOf(to, below.length)];
      const down = link.link === LINK_DOWN;
      const tone = down ? ('bad' as const) : ('good' as const);
      const line = { x1, y1: TOP + NODE.height, x2, y2: BOTTOM, width: 1.5 + Math.log2(1 + link.tunnels) };
      return [{ key: `${gateway.id} ${hub.hubId}`, tone, broken: down, label: shortLink(link), ...line }];
    }),
  );
  const placed = (row: ReturnType<typeof rowOf>, top: number) =>
    row.map((box, index) => ({ ...box, x: middleOf(index, row.length), y: top + NODE.height / 2 }));
  return (
    <figure class="links">
      <Drawing
        name="links"
        title="Links from gateways to hubs; the table and the findings say the same"
        width={WIDTH}
        height={BOTTOM + NODE.height + 8}
        size={NODE}
        boxes={[...placed(above, TOP), ...placed(below, BOTTOM)]}
        ways={ways}
      />
      <figcaption>
        A line is a link: its number is the round trip, and it is thicker the more tunnels it carries.
      </figcaption>
    </figure>
  );
}

function middleOf(index: number, of: number): number {
  return ((index + 0.5) * WIDTH) / of;
}

/** Those that are lost stand behind the others, as far as there is room. */
function rowOf(plane: Plane, here: readonly Pick<Seen, 'id' | 'zone'>[], lost: readonly string[]) {
  const known = here.map(({ id, zone }) => ({ id, zone, health: healthOf(id, plane) }));
  const ghosts = lost.slice(0, CONSOLE.membersDrawn - known.length);
  return [...known, ...ghosts.map((id) => ({ id, zone: '', health: 'lost' as const }))].map(({ id, zone, health }) => {
    const tone = TONES[health];
    const style = tone === 'bad' ? ('heavy' as const) : tone === 'draining' ? ('broken' as const) : undefined;
    return { key: id, name: id, tone, style, note: zone === '' ? health : `${health}, zone ${short(zone, 10)}` };
  });
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

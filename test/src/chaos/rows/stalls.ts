import { type Member, residentBytes } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { flooding } from '../../rig/flooding.ts';
import { networksMissing } from '../../rig/network.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

const MB = 1e6;
/** The most that one stalled tunnel may hold in one process: its window, and what the streams of its two sockets buffer. */
const HELD = 1.5 * MB;
/** How much a process may grow under this load, whatever stalls. */
const NOISE = 150 * MB;

function resident({ program }: Member): number {
  return residentBytes(program.pid);
}

interface Stall {
  readonly tunnels: number;
  readonly who: 'readers' | 'destinations';
}

async function stall({ scope, plane, hold, measure }: Context<Plane>, { tunnels, who }: Stall): Promise<void> {
  const members = [...plane.gateways, ...plane.agents];
  const before = members.map(resident);
  const sessions = await sessionIds(plane);
  const readers = who === 'readers';
  const { port } = await listening(scope, 'rig/load/destination.ts');
  const fronts = plane.doors.flatMap((door) =>
    (['connect', 'mtls'] as const).map((protocol) => ({ kind: 'door', door, protocol }) as const),
  );
  const held = { [readers ? 'stalled' : 'blocked']: tunnels };
  const swarm = await flooding(scope, { held, fronts, destinationPort: port });
  await hold(20_000, 4000);
  const growth = Math.max(...members.map((member, index) => resident(member) - (before[index] ?? 0)));
  measure('a process grew by', growth / MB, 'MB', (tunnels * HELD + NOISE) / MB);
  measure('stalled tunnels ended', tunnels - swarm.begun.tunnels + (await swarm.done()).ended, '', 0);
  const left = await sessionIds(plane);
  measure('sessions ended', sessions.filter((id) => !left.includes(id)).length, '', 0);
  await swarm.end();
}

async function sessionIds({ gateways: servers }: Plane): Promise<string[]> {
  const lists = await Promise.all(servers.map((server) => server.sessions()));
  return lists.flat().map(({ sessionId }) => sessionId);
}

function rowOf(name: string, fault: string, what: Stall): Row<Plane> {
  return {
    name,
    fault,
    holds: 'others unaffected; memory within the windows; no session ended',
    bounds: { dialMs: 1000 },
    skip: networksMissing,
    topology: (scope) => startPlane(scope, { servers: 1, agents: 1 }),
    inject: (context) => stall(context, what),
  };
}

export const stallRows: readonly Row<Plane>[] = [
  rowOf('reader-stall', 'one reader stalled', { tunnels: 1, who: 'readers' }),
  rowOf('readers-stall', '500 readers stalled', { tunnels: 500, who: 'readers' }),
  rowOf('destinations-stall', '500 destinations stalled', { tunnels: 500, who: 'destinations' }),
];

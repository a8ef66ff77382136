import { Scope, until } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { flooding } from '../../rig/flooding.ts';
import { FLOODS, type FloodDone, type FloodKind, heldBy } from '../../rig/load/messages.ts';
import { networksMissing } from '../../rig/network.ts';
import { type TenantsPlane, tenantsPlane } from '../../rig/tenants-plane.ts';
import type { Context, Row } from '../row.ts';

/** Tunnels of each kind that a flood holds at most. */
const MOST = 5000;
const MOST_IF_SHORT = 500;

async function floods(context: Context<TenantsPlane>): Promise<void> {
  const { port } = await listening(context.scope, 'rig/load/destination.ts');
  for (const kind of FLOODS) await flood(context, kind, port);
}

/** Every tunnel of the quiet tenant must carry bytes while the other one floods. */
async function flood({ plane, load, hold, measure, short }: Context<TenantsPlane>, kind: FloodKind, port: number) {
  const front = { kind: 'door', door: plane.floodDoor, protocol: 'connect' } as const;
  await using scope = new Scope();
  const held = heldBy(kind, short ? MOST_IF_SHORT : MOST);
  const flood = await flooding(scope, { held, fronts: [front], destinationPort: port });
  await hold(10_000, 2000);
  let lacks: string | undefined;
  const floods = async () => {
    lacks = lacking(kind, await flood.done());
    return !lacks;
  };
  await until(floods, { what: () => `${lacks} of a flood of ${kind}` });
  await load.flows();
  const { dials, tunnels } = await flood.done();
  if (dials > 0) measure({ name: `dials of the flood (${kind})`, value: dials, unit: '' });
  if (tunnels > 0) measure({ name: `its tunnels (${kind})`, value: tunnels, unit: '' });
}

/** Returns what a flood should have done and has not. */
function lacking(kind: FloodKind, { dials, tunnels, bytes }: FloodDone): string | undefined {
  if (dials === 0 && (kind === 'dials' || kind === 'all')) return 'dials';
  if (bytes === 0 && (kind === 'downloads' || kind === 'all')) return 'bytes';
  return tunnels === 0 && kind !== 'dials' ? 'tunnels' : undefined;
}

export const fairnessRows: readonly Row<TenantsPlane>[] = [
  {
    name: 'fairness',
    fault: 'another tenant floods: 1,500 dials/s; 32 downloads; 400 stalled tunnels; 5,000 idle ones; all at once',
    holds: 'no dial fails, no tunnel is cut, and every tunnel is answered during each flood',
    bounds: {},
    // A tenant is quiet if it takes less than half of what two processors, which also run the flood's callers, can do.
    dialsPerSecond: 100,
    apart: true,
    skip: networksMissing,
    topology: tenantsPlane,
    inject: floods,
  },
];

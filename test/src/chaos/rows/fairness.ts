import { Scope, tempDir, times, until, type Ways } from '../../harness/index.ts';
import { listening } from '../../rig/child.ts';
import { flooding } from '../../rig/flooding.ts';
import { FLOODS, type FloodDone, type FloodKind, heldBy } from '../../rig/load/messages.ts';
import { networksMissing } from '../../rig/network.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import { TenantsDirectory } from '../../tenants/tenants-directory.ts';
import type { Context, Row } from '../row.ts';

/** Tunnels of each kind that a flood holds at most. */
const MOST = 5000;
const MOST_IF_SHORT = 500;

interface TenantsPlane extends Plane {
  /** Where the callers of the tenant that floods dial. `doors` are the other one's. */
  readonly floodDoor: Ways;
}

/** A quiet tenant and one that floods, with an agent each, on one gateway, hub and link. */
async function tenantsPlane(scope: Scope): Promise<TenantsPlane> {
  const [directory, sockets] = [await TenantsDirectory.create(scope), await tempDir(scope)];
  const tenants = await times(2, async (index) => {
    const name = ['quiet', 'flood'][index] as string;
    const [trust, uds] = [await directory.trust(name), `${sockets}/${name}.sock`];
    await directory.write({ ...trust.file, callers: [{ unixSocket: uds }, ...(trust.file.callers ?? [])] });
    const { cert, key } = await trust.agent(`agent-${index}`);
    const mtls = { ca: trust.cluster.cert, serverName: trust.serverName, identity: await trust.caller() };
    return { flags: { 'agent-cert': cert, 'agent-key': key }, uds, mtls };
  });
  const plane = await startPlane(scope, {
    ...{ hubs: 1, gateways: 1, agents: 2, sessionCount: 1 },
    planeFlags: { 'tenants-dir': directory.path },
    gatewayFlags: { 'uds-name': undefined },
    agentFlags: (index) => tenants[index]?.flags ?? {},
  });
  const { mtls: shared } = plane.doors[0] as Ways;
  const [own, other] = tenants.map(({ uds, mtls }) => {
    return { grpc: { uds }, connect: { uds }, mtls: { ...shared, ...mtls } };
  }) as [Ways, Ways];
  return { ...plane, doors: [own], floodDoor: other };
}

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
  if (dials > 0) measure(`dials of the flood (${kind})`, dials);
  if (tunnels > 0) measure(`its tunnels (${kind})`, tunnels);
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
    skip: networksMissing,
    topology: tenantsPlane,
    inject: floods,
  },
];

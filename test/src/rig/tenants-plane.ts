import { mkdir, writeFile } from 'node:fs/promises';
import type { Ways } from '../harness/index.ts';
import { Authority, type Flags, type Identity, type Scope, tempDir } from '../harness/index.ts';
import { type Plane, startPlane } from './plane.ts';

export interface TenantsPlane extends Plane {
  /** Where the callers of the tenant that floods dial. `doors` are the other one's. */
  readonly floodDoor: Ways;
}

interface Tenant {
  readonly agentFlags: Flags;
  readonly caller: Identity;
  readonly unixSocket: string;
}

/** A quiet tenant and one that floods, with an agent each, on one gateway, hub and link. */
export async function tenantsPlane(scope: Scope): Promise<TenantsPlane> {
  const dir = await tempDir(scope);
  const files = `${dir}/tenants`;
  await mkdir(files);
  const tenants = await Promise.all(
    ['quiet', 'flood'].map((name, index) => tenant(dir, files, name, `agent-${index}`)),
  );
  const plane = await startPlane(scope, {
    hubs: 1,
    gateways: 1,
    agents: tenants.length,
    sessionCount: 1,
    planeFlags: { 'tenants-dir': files },
    gatewayFlags: { 'uds-name': undefined },
    agentFlags: (index) => tenants[index]?.agentFlags ?? {},
  });
  const [shared] = plane.doors as [Ways];
  const [own, other] = tenants.map((each) => doorOf(each, shared)) as [Ways, Ways];
  return { ...plane, doors: [own], floodDoor: other };
}

/** Writes a tenant's file. Its authority issues the certificates of its agents and callers. */
async function tenant(dir: string, files: string, name: string, agentId: string): Promise<Tenant> {
  const authority = await Authority.create(dir, name);
  const { cert, key } = await authority.client(agentId);
  const unixSocket = `${dir}/${name}.sock`;
  const file = {
    tenant: name,
    agents: [{ certificates: { ca: authority.cert } }],
    callers: [{ unixSocket }, { certificates: { ca: authority.cert, names: ['caller'] } }],
  };
  await writeFile(`${files}/${name}.yaml`, JSON.stringify(file));
  return { agentFlags: { 'agent-cert': cert, 'agent-key': key }, caller: await authority.client('caller'), unixSocket };
}

function doorOf({ caller, unixSocket: uds }: Tenant, { mtls }: Ways): Ways {
  return { grpc: { uds }, connect: { uds }, mtls: { ...mtls, identity: caller } };
}

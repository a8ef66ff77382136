import { mkdir, writeFile } from 'node:fs/promises';
import { Authority, type Flags, type Scope, tempDir } from '../harness/index.ts';
import type { Door } from './door.ts';
import { type SplitPlane, type SplitPlaneOptions, splitPlane } from './split-plane.ts';

export interface TenantsPlane extends SplitPlane {
  /** Where the callers of the tenant that floods dial: the last one. `doors` are the first tenant's. */
  readonly floodDoor: Door;
}

interface Tenant {
  readonly agentFlags: Flags;
  /** The paths of a caller's certificate and key. */
  readonly caller: { readonly cert: string; readonly key: string };
  readonly unixSocket: string;
}

/** Tenants with an agent each, on one gateway, hub and link. */
export async function tenantsPlane(
  scope: Scope,
  names: readonly string[] = ['quiet', 'flood'],
  { agentFlags, ...options }: SplitPlaneOptions = {},
): Promise<TenantsPlane> {
  const dir = await tempDir(scope);
  const files = `${dir}/tenants`;
  await mkdir(files);
  const tenants = await Promise.all(names.map((name, index) => tenant(dir, files, name, `agent-${index}`)));
  const plane = await splitPlane(scope, {
    hubs: 1,
    gateways: 1,
    agents: names.length,
    sessionCount: 1,
    ...options,
    planeFlags: { 'tenants-dir': files, ...options.planeFlags },
    gatewayFlags: { 'uds-name': undefined },
    agentFlags: (index) => ({ ...tenants[index]?.agentFlags, ...agentFlags?.(index) }),
  });
  const [shared] = plane.doors as [Door];
  const [own, other] = [tenants[0], tenants.at(-1)].map((each) => doorOf(each as Tenant, shared)) as [Door, Door];
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

function doorOf({ caller, unixSocket }: Tenant, { mtls }: Door): Door {
  return { grpc: unixSocket, connect: unixSocket, mtls: { ...mtls, cert: caller.cert, key: caller.key } };
}

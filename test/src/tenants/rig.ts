import type { TenantFile } from '@isthmus/admission';
import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import {
  type Back,
  type ConnectAnswer,
  connectThrough,
  type Destination,
  type Env,
  type Flags,
  type Front,
  greeter,
  type Identity,
  newTrust,
  nextChunk,
  type Program,
  peerFlags,
  type Scope,
  startAgent,
  startGateway,
  startHub,
  type TlsVia,
  type Trust,
  tempDir,
  until,
} from '../harness/index.ts';
import type { TenantTrust } from './tenant-trust.ts';
import { TenantsDirectory } from './tenants-directory.ts';

/** A gateway, a hub and a Redis with a directory of tenants' files. */
export interface TenantsPlane {
  readonly trust: Trust;
  readonly redis: RedisServer;
  readonly directory: TenantsDirectory;
  readonly gateway: Front;
  readonly hub: Back;
  /** Paths of the audit logs. */
  readonly audit: { readonly gateway: string; readonly hub: string };
}

/** A tenant with an agent, and a destination that answers with the tenant's name. */
export interface Cluster {
  readonly name: string;
  readonly trust: TenantTrust;
  readonly agent: Program;
  readonly destination: Destination;
}

export interface TenantsPlaneOptions {
  readonly gatewayFlags?: Flags;
  readonly hubFlags?: Flags;
  /** Added to the gateway's environment. */
  readonly gatewayEnv?: Env;
}

/** Starts the plane's servers. No tenant is there yet. */
export async function tenantsPlane(
  scope: Scope,
  { gatewayFlags, hubFlags, gatewayEnv }: TenantsPlaneOptions = {},
): Promise<TenantsPlane> {
  const trust = await newTrust(scope);
  const directory = await TenantsDirectory.create(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const dir = await tempDir(scope);
  const audit = { gateway: `${dir}/gateway.jsonl`, hub: `${dir}/hub.jsonl` };
  const plane: Flags = { 'redis-url': redis.url, plane: 'test', 'tenants-dir': directory.path };
  const hub = await startHub(scope, trust, { ...plane, 'audit-log': audit.hub, ...hubFlags });
  const peer = await peerFlags(trust, ['gateway']);
  // The flag's socket would be of no tenant.
  const own = { ...plane, ...peer, 'uds-name': undefined, 'audit-log': audit.gateway };
  const gateway = await startGateway(scope, trust, { ...own, ...gatewayFlags }, gatewayEnv);
  return { trust, redis, directory, gateway, hub, audit };
}

/** Adds a tenant with one agent, and waits until its callers can dial. @param more fields of its file */
export async function addCluster(
  scope: Scope,
  plane: TenantsPlane,
  name: string,
  more: Partial<TenantFile> = {},
): Promise<Cluster> {
  const inForce = () => plane.gateway.program.value('isthmus_tenants');
  const before = await inForce();
  const trust = await plane.directory.add(name, more);
  const destination = await greeter(scope, `${name}\n`);
  const agent = await tenantAgent(scope, plane, trust, 'edge-1');
  await agent.waitReady();
  // The gateway may look at the files later than the hub.
  await until(async () => (await inForce()) > before, { what: `the gateway to serve ${name}` });
  return { name, trust, agent, destination };
}

/** Starts an agent with a certificate of the tenant's CA, or another one. */
export async function tenantAgent(
  scope: Scope,
  { trust, hub }: TenantsPlane,
  tenant: TenantTrust,
  id: string,
  flags: Flags = {},
  identity?: Identity,
): Promise<Program> {
  const { cert, key } = identity ?? (await tenant.agent(id));
  const own = { 'agent-id': id, 'agent-cert': cert, 'agent-key': key };
  return startAgent(scope, trust, hub.agentPort, { ...own, ...flags });
}

/** How a tenant's API server reaches the gateway: with the tenant's server name, and a certificate of its CA. */
export async function callerOf(
  { gateway }: TenantsPlane,
  tenant: TenantTrust,
  identity?: Identity,
): Promise<TlsVia & { readonly identity: Identity }> {
  const { port } = gateway.mtls;
  const { serverName, cluster } = tenant;
  return { port, serverName, ca: cluster.cert, identity: identity ?? (await tenant.caller()) };
}

/** Dials, and returns what the destination says first, or the refusal. */
export async function dialled(
  scope: Scope,
  via: TlsVia,
  destination: string,
  headers: readonly string[] = [],
): Promise<Pick<ConnectAnswer, 'status' | 'headers' | 'body'> & { readonly said: string }> {
  const { status, headers: fields, body, socket, head } = await connectThrough(scope, { via, destination, headers });
  if (status !== 200) return { status, headers: fields, body, said: '' };
  const said = head.length > 0 ? head : await nextChunk(socket, 'the greeting');
  socket.destroy();
  return { status, headers: fields, body, said: said.toString().trim() };
}

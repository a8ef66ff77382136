import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { adminClient } from '@isthmus/admin/testing/client';
import { type Authority, agentPackets, type Identity, type Scope, type TlsVia, within } from '../harness/index.ts';
import { type Cluster, dialled, type TenantsPlane } from './rig.ts';

/** How long an attempt may take, in milliseconds. One that gets no answer fails. */
const ATTEMPT_MS = 20_000;

/** What somebody tries with a certificate, or without one. Resolves with what was gained, rejects with the refusal. */
export type Attempt = (scope: Scope, identity: Identity | undefined) => Promise<string>;

/** Dials a cluster's destination as that tenant's caller does. */
export function dialTo(plane: TenantsPlane, { trust, destination }: Cluster): Attempt {
  return async (scope, identity) => {
    const { status, body, said } = await dialled(
      scope,
      viaOf(plane.gateway.mtls.port, trust.serverName, trust.cluster.cert, identity),
      destination.authority,
    );
    if (status !== 200) throw new Error(`${status} ${body}`);
    return said;
  };
}

/** Connects as an agent of a tenant, under an id. */
export function claimOf(plane: TenantsPlane, { trust }: Cluster, agentId: string): Attempt {
  return async (scope, identity) => {
    const via = viaOf(plane.hub.agentPort, trust.serverName, trust.cluster.cert, identity);
    const agent = agentPackets(scope, via, { agentID: agentId, agentIdentifiers: '' });
    const refused = agent.ended(ATTEMPT_MS).then(({ code, details }) => {
      throw new Error(`${code} ${details}`);
    });
    const accepted = new Promise<string>((resolve) =>
      agent.stream.once('metadata', (metadata) => metadata.get('serverID').length > 0 && resolve('a session')),
    );
    return Promise.race([accepted, refused]);
  };
}

/** The admin port of a program, with certificates. */
export interface Operated {
  readonly port: number;
  readonly ca: Authority;
}

function adminCall(
  { port, ca }: Operated,
  call: (admin: ReturnType<typeof adminClient>['admin'], signal: AbortSignal) => Promise<string>,
): Attempt {
  return async (_scope, identity) => {
    using connection = adminClient(`127.0.0.1:${port}`, {
      ca: readFileSync(ca.cert),
      ...(identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) }),
    });
    return await call(connection.admin, AbortSignal.timeout(ATTEMPT_MS));
  };
}

/** Lists sessions. @returns their tenants */
export function list(operated: Operated): Attempt {
  return adminCall(operated, async (admin, signal) => {
    const { sessions } = await admin.listSessions({}, { signal });
    return [...new Set(sessions.map(({ tenant }) => tenant))].sort().join();
  });
}

/** Ends the sessions of an agent of a tenant. @returns how many */
export function kick(operated: Operated, tenant: string, agentId: string): Attempt {
  return adminCall(operated, async (admin, signal) => {
    const target = { $case: 'agent' as const, value: { tenant, agentId } };
    const { sessionIds } = await admin.kick({ target, reason: 'a test' }, { signal });
    return `${sessionIds.length} kicked`;
  });
}

/** Reads the metrics page. @returns the tenants that it names */
export function readMetrics({ port, ca }: Operated): Attempt {
  return (_scope, identity) => {
    const answered = new Promise<string>((resolve, reject) => {
      const tls = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
      const options = { host: '127.0.0.1', port, path: '/metrics', ca: readFileSync(ca.cert), agent: false, ...tls };
      const asked = request(options, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk) => {
          text += chunk;
        });
        response.once('end', () =>
          response.statusCode === 200 ? resolve(tenantsIn(text)) : reject(new Error(`${response.statusCode} ${text}`)),
        );
      });
      asked.once('error', reject).end();
    });
    return within(answered, { deadline: ATTEMPT_MS, what: 'a page of metrics' });
  };
}

function tenantsIn(page: string): string {
  const tenants = [...page.matchAll(/[{,]tenant="([^"]*)"/g)].map(([, tenant]) => tenant);
  return [...new Set(tenants)].sort().join();
}

function viaOf(port: number, serverName: string, ca: string, identity: Identity | undefined): TlsVia {
  return { port, serverName, ca, ...(identity && { identity }) };
}

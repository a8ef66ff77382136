import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { ClientRequest } from 'node:http';
import { request } from 'node:https';
import type { Authority } from '@isthmus/certificates/testing';
import { type Operation, planeEvents, type SessionInfo, type TunnelInfo } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { Recent } from '../calls/recent.ts';
import { aPort, aSession, aTunnel, idleBackend, tlsBy } from './backend.ts';
import { type AdminClientTls, adminClient, grpcClient } from './client.ts';

const mine = aSession('mine', { tenant: 'acme', agentId: 'edge' });
const theirs = aSession('theirs', { tenant: 'beta', agentId: 'edge' });

function tunnelOf({ tenant, sessionId }: SessionInfo): TunnelInfo {
  return aTunnel({ agentId: 'edge', sessionId, dial: { ...aTunnel().dial, id: `d-${tenant}`, tenant } });
}

/** Starts an admin port with two tenants, and returns what happens there and clients of it. */
export async function tenantsPort(authority: Authority, given: Partial<AdminBackend> = {}) {
  const own = await authority.server();
  const operations: Operation[] = [];
  const done: string[] = [];
  const events = planeEvents();
  const recent = new Recent(events);
  for (const session of [mine, theirs]) {
    events.emit('dial:start', 'gateway', tunnelOf(session).dial);
    events.emit('dial:end', 'gateway', tunnelOf(session).dial, { ms: 1 });
  }
  for (const session of [mine, theirs]) events.emit('session:open', session);
  const known = (name: string) => ({
    name,
    file: `${name}.yaml`,
    use: {},
    certificates: [],
    apiServerNames: [],
    state: '',
  });
  const backend = idleBackend({
    recent,
    checks: () => [{ name: 'sessions', ok: true, detail: 'acme: 1, beta: 1' }],
    notices: () => [{ kind: 'tenant_file', text: 'of beta' }],
    sessions: () => [mine, theirs],
    sessionCount: () => 2,
    tunnels: () => new Set([tunnelOf(mine), tunnelOf(theirs)]),
    kick: {
      tunnel: (id) => done.push(`tunnel ${id}`),
      sessions(which) {
        const kicked = [mine, theirs].filter(which);
        done.push(...kicked.map(({ sessionId }) => `session ${sessionId}`));
        return kicked;
      },
    },
    quarantine: {
      set: async ({ tenant, agentId }) => done.push(`quarantine ${tenant}/${agentId}`),
      reasonFor: () => undefined,
      list: () => ['acme', 'beta'].map((tenant) => ({ tenant, agentId: 'edge', reason: 'x', version: 1 })),
    },
    tenants: {
      list: () => [known('acme'), known('beta')],
      has: (name) => ['acme', 'beta'].includes(name),
      unopened: () => ['acme.yaml: agents[0].port: port 9132: EADDRINUSE'],
      problems: () => [{ file: 'beta.yaml', line: 1, column: 1, message: 'no' }],
      scraped: async (tenant = 'all') => [{ targets: ['10.0.0.1:10250'], labels: { of: tenant } }],
    },
    operated: (operation) => operations.push(operation),
    ...given,
  });
  const metrics = async (_accept?: string, tenant = 'all') => ({ contentType: 'text/plain', body: `of ${tenant}\n` });
  const server = await aPort({
    backend,
    console: { when: 'on', traceUrl: '' },
    metrics,
    profiling: true,
    tls: tlsBy(authority, own),
  });
  const at = `127.0.0.1:${server.address.port}`;
  const tlsOf = async (...ids: string[]): Promise<AdminClientTls> => {
    const hosts = ids.map((value) => ({ type: 'url' as const, value }));
    const { cert, key } = await authority.client('alice', { uses: ['client'], ...(hosts.length > 0 && { hosts }) });
    return { ca: readFileSync(authority.cert), cert: readFileSync(cert), key: readFileSync(key) };
  };
  return {
    port: server.address.port,
    operations,
    done,
    client: async (...ids: string[]) => adminClient(at, await tlsOf(...ids)),
    grpc: async (...ids: string[]) => grpcClient(at, await tlsOf(...ids)),
    async page(path: string, ...ids: string[]): Promise<string> {
      return textOf(request(`https://${at}${path}`, { ...(await tlsOf(...ids)), agent: false }).end());
    },
    /** Asks this member, in JSON. */
    async ask(question: object, ...ids: string[]): Promise<string> {
      const headers = { 'content-type': 'application/json' };
      const options = { ...(await tlsOf(...ids)), method: 'POST', headers, agent: false };
      return textOf(request(`https://${at}/ask`, options).end(JSON.stringify({ members: [], ...question })));
    },
    [Symbol.asyncDispose]: () => server.close(),
  };
}

/** Returns the status and the text of an answer. */
async function textOf(asked: ClientRequest): Promise<string> {
  const [response] = await once(asked, 'response');
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  return `${response.statusCode} ${text.trim()}`;
}

import assert from 'node:assert/strict';
import type { Authority, Identity } from '@isthmus/certificates/testing';
import { tlsServer } from '@isthmus/transport';
import { planeEvents, type SessionInfo, type TunnelInfo } from '@isthmus/tunnel';
import type { AdminBackend, KnownSession } from '../backend.ts';
import { Recent } from '../calls/recent.ts';
import { type AdminOptions, type AdminServer, type AdminTls, serveAdmin } from '../server.ts';
import { type AdminConnection, adminClient } from './client.ts';

/** Returns an admin backend of an idle program, with the parts that a test gives. */
export function idleBackend(given: Partial<AdminBackend> = {}): AdminBackend {
  return {
    identity: {
      program: 'proxy-server',
      roles: ['gateway', 'hub'] as const,
      memberId: 'm1',
      hubId: 'm1',
      agentId: '',
      zone: 'a',
      plane: 'isthmus',
    },
    admission: () => 'open',
    checks: () => [],
    sessions: () => [],
    sessionCount: () => 0,
    tunnels: () => new Set(),
    recent: new Recent(planeEvents()),
    metrics: async () => ({ contentType: 'text/plain', body: 'a page\n' }),
    flags: [],
    log: { info() {}, level: 'info', levelOf: () => 'debug', recent: Object.assign([], { forgotten: 0 }) },
    kick: { tunnel: () => 0 },
    drain() {},
    plan: () => ({ sessions: 0, moves: [] }),
    ...given,
  };
}

/** A session of agent `a` with hub `h`. */
export function aSession(sessionId: string, given: Partial<KnownSession> = {}): SessionInfo {
  return {
    sessionId,
    tenant: 'default',
    agentId: 'a',
    hubId: 'h',
    protocol: 'link',
    remote: '10.0.0.1:5000',
    since: 1,
    identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false },
    ...given,
  };
}

/** A tunnel through session `s` of agent `a` with hub `h`. */
export function aTunnel(given: Partial<TunnelInfo> = {}): TunnelInfo {
  const { signal } = new AbortController();
  const dial = { id: 'd1', tenant: 'default', destination: { host: 'h', port: 1 }, deadline: 0, signal };
  return { role: 'gateway', dial, agentId: 'a', sessionId: 's', hubId: 'h', since: 1, up: 0, down: 0, ...given };
}

/** The admin port's TLS, as programs make it of their flags. */
export function tlsBy({ cert: ca }: Authority, { cert, key }: Identity): AdminTls {
  return (...rest) => tlsServer({ where: 'admin', files: { cert, key, ca }, events: planeEvents() }, ...rest);
}

/** Starts an admin port on loopback, of an idle program unless a test says otherwise. */
export function aPort(given: Partial<AdminOptions> = {}): Promise<AdminServer> {
  return serveAdmin({
    host: '127.0.0.1',
    port: 0,
    backend: idleBackend(),
    metrics: async () => ({ contentType: 'text/plain', body: 'a page\n' }),
    profiling: false,
    warn: (message) => assert.fail(message),
    ...given,
  });
}

/** Returns a client of an admin port that serves a backend. */
export async function asking(given: Partial<AdminBackend> = {}): Promise<AdminConnection & AsyncDisposable> {
  const server = await aPort({ backend: idleBackend(given) });
  const client = adminClient(`127.0.0.1:${server.address.port}`);
  return {
    admin: client.admin,
    [Symbol.dispose]: () => client[Symbol.dispose](),
    async [Symbol.asyncDispose]() {
      client[Symbol.dispose]();
      await server.close();
    },
  };
}

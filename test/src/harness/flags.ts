import type { PeerRole } from '@isthmus/certificates/testing';
import { freePort } from './places.ts';
import type { Flags } from './runtime.ts';
import type { Trust } from './trust.ts';

/** Flags of a hub, or of a proxy-server, that other processes of its plane connect to. */
export async function hubFlags(trust: Trust, agentPort: number): Promise<Flags> {
  const peerPort = await freePort();
  return {
    ...(await peerFlags(trust)),
    'peer-port': peerPort,
    'peer-bind-address': '127.0.0.1',
    'advertise-address': `127.0.0.1:${peerPort}`,
    'advertise-agent-address': `127.0.0.1:${agentPort}`,
  };
}

/** Flags of an agent that upstream's agent has too. */
export async function uplinkFlags(trust: Trust, port: number) {
  const identity = await trust.agents.client('agent');
  const healthPort = await freePort();
  return {
    healthPort,
    'proxy-server-host': '127.0.0.1',
    'proxy-server-port': port,
    'ca-cert': trust.agents.cert,
    'agent-cert': identity.cert,
    'agent-key': identity.key,
    'health-server-host': '127.0.0.1',
    'health-server-port': healthPort,
    'sync-interval': '200ms',
    'sync-interval-cap': '1s',
    'probe-interval': '200ms',
  };
}

/** Flags of the port for agents, with upstream's names. */
export async function agentPortFlags(trust: Trust, port: number): Promise<Flags> {
  const { cert, key } = await trust.agents.server();
  return {
    'agent-port': port,
    'agent-bind-address': '127.0.0.1',
    'cluster-cert': cert,
    'cluster-key': key,
    'cluster-ca-cert': trust.agents.cert,
  };
}

/** Flags of a gateway's or hub's own certificate; of both roles for a server that is both. */
export async function peerFlags(trust: Trust, roles: readonly PeerRole[] = ['gateway', 'hub']): Promise<Flags> {
  const { cert, key } = await trust.peers.peer(roles);
  return { 'peer-cert': cert, 'peer-key': key, 'peer-ca-cert': trust.peers.cert };
}

export async function healthFlags() {
  return {
    'health-port': await freePort(),
    'health-bind-address': '127.0.0.1',
    'admin-port': await freePort(),
    'admin-bind-address': '127.0.0.1',
  };
}

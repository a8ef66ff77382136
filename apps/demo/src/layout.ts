import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { PeerRole, Trust } from '@isthmus/certificates/testing';
import { DEMO } from './defaults.ts';

/** A program to start: its flags, and the ports that tell when it is ready. */
export interface Part {
  readonly name: string;
  readonly program: ProgramName;
  readonly flags: Flags;
  readonly healthPort: number;
  readonly adminPort: number;
}

/** A part that accepts callers. */
export interface Front extends Part {
  readonly socket: string;
  readonly port: number;
}

export interface Layout {
  readonly fronts: readonly [Front, ...Front[]];
  readonly hubs: readonly Part[];
  readonly agents: readonly Part[];
  /** Port of the Redis that connects the parts. */
  readonly redisPort?: number;
}

type Flags = Readonly<Record<string, string | number>>;

type ProgramName = 'proxy-server' | 'proxy-agent' | 'frontend-gw' | 'backend-hub';

/** Returns a layout of one server with everything inside and one agent, on upstream's ports. */
export async function singleLayout(trust: Trust, ports: Ports): Promise<Layout> {
  const agentPort = await ports.take(8091);
  const front = await frontFlags(trust, ports, 'server');
  const flags = { ...front.flags, ...(await agentPortFlags(trust, agentPort)), 'server-id': 'server' };
  const server: Front = { ...front, name: 'server', program: 'proxy-server', flags };
  return { fronts: [server], hubs: [], agents: [await agentPart(trust, ports, 'agent', agentPort)] };
}

/** Returns a layout of two gateways, two hubs and two agents around a Redis. Every gateway reaches every agent through either hub. */
export async function splitLayout(trust: Trust, ports: Ports): Promise<Layout> {
  const redisPort = await ports.take(8096);
  const plane = { 'redis-url': `redis://127.0.0.1:${redisPort}` };
  const fronts: [Front, Front] = [
    await gatewayPart(trust, ports, 'gateway-1', plane),
    await gatewayPart(trust, ports, 'gateway-2', plane),
  ];
  const hubs: Part[] = [];
  const agents: Part[] = [];
  for (const number of [1, 2]) {
    const agentPort = await ports.take(8091);
    hubs.push(await hubPart(trust, ports, `hub-${number}`, agentPort, plane));
    agents.push(await agentPart(trust, ports, `agent-${number}`, agentPort));
  }
  return { fronts, hubs, agents, redisPort };
}

const LOOPBACK = '127.0.0.1';

/** Hands out TCP ports on loopback, each only once. */
export class Ports {
  readonly #taken = new Set<number>();
  readonly #isFree: (port: number) => Promise<boolean>;

  constructor(isFree = canListen) {
    this.#isFree = isFree;
  }

  /**
   * Returns the wanted port if it is free, otherwise the first that is, in steps of ten. Not one that the kernel picks: it may give that to
   * somebody else before the program listens.
   */
  async take(wanted: number): Promise<number> {
    for (let step = 0; step < DEMO.portSteps; step++) {
      const port = wanted + step * DEMO.portStep;
      if (this.#taken.has(port) || !(await this.#isFree(port))) continue;
      this.#taken.add(port);
      return port;
    }
    throw new Error(`no free TCP port on ${LOOPBACK} from ${wanted} on`);
  }
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

const DIRECTORIES: Record<ProgramName, string> = {
  'proxy-server': 'server',
  'proxy-agent': 'agent',
  'frontend-gw': 'frontend-gw',
  'backend-hub': 'backend-hub',
};

/** Returns how to start a program on the current runtime: sources on both. */
export function commandOf(program: ProgramName): readonly [string, ...string[]] {
  const app = fileURLToPath(new URL(`../../${DIRECTORIES[program]}`, import.meta.url));
  if (process.versions.deno !== undefined) return [process.execPath, 'run', '-A', `${app}/src/main.ts`];
  return [process.execPath, `${app}/bin/${program}.js`];
}

async function gatewayPart(trust: Trust, ports: Ports, name: string, plane: Flags): Promise<Front> {
  const front = await frontFlags(trust, ports, name);
  const flags = { ...front.flags, ...plane, ...(await peerFlags(trust, 'gateway')), 'server-id': name };
  return { ...front, name, program: 'frontend-gw', flags };
}

async function frontFlags(trust: Trust, ports: Ports, name: string) {
  const { cert, key } = await trust.callers.server();
  const socket = join(trust.dir, `${name}.sock`);
  const port = await ports.take(8090);
  const { healthPort, adminPort, flags } = await observed(ports);
  return {
    socket,
    port,
    healthPort,
    adminPort,
    flags: {
      ...flags,
      // The demo shows the dials in these logs.
      v: 5,
      'uds-name': socket,
      'server-bind-address': '127.0.0.1',
      'server-port': port,
      'server-cert': cert,
      'server-key': key,
      'server-ca-cert': trust.callers.cert,
    },
  };
}

async function hubPart(trust: Trust, ports: Ports, name: string, agentPort: number, plane: Flags): Promise<Part> {
  const peerPort = await ports.take(8097);
  const { healthPort, adminPort, flags } = await observed(ports);
  return {
    name,
    program: 'backend-hub',
    healthPort,
    adminPort,
    flags: {
      ...flags,
      ...plane,
      ...(await agentPortFlags(trust, agentPort)),
      ...(await peerFlags(trust, 'hub')),
      'server-id': name,
      'peer-bind-address': '127.0.0.1',
      'peer-port': peerPort,
      'advertise-address': `127.0.0.1:${peerPort}`,
      'advertise-agent-address': `127.0.0.1:${agentPort}`,
    },
  };
}

async function agentPart(trust: Trust, ports: Ports, name: string, agentPort: number): Promise<Part> {
  const { cert, key } = await trust.agents.client(name);
  const healthPort = await ports.take(8093);
  const adminPort = await ports.take(8094);
  return {
    name,
    program: 'proxy-agent',
    healthPort,
    adminPort,
    flags: {
      'agent-id': name,
      'proxy-server-host': '127.0.0.1',
      'proxy-server-port': agentPort,
      'ca-cert': trust.agents.cert,
      'agent-cert': cert,
      'agent-key': key,
      'health-server-host': '127.0.0.1',
      'health-server-port': healthPort,
      'admin-server-port': adminPort,
    },
  };
}

async function observed(ports: Ports) {
  const healthPort = await ports.take(8092);
  const adminPort = await ports.take(8095);
  const flags = {
    'health-bind-address': '127.0.0.1',
    'health-port': healthPort,
    'admin-port': adminPort,
    'graceful-shutdown-timeout': `${DEMO.drainMs}ms`,
  };
  return { healthPort, adminPort, flags };
}

async function agentPortFlags(trust: Trust, port: number): Promise<Flags> {
  const { cert, key } = await trust.agents.server();
  return {
    'agent-bind-address': '127.0.0.1',
    'agent-port': port,
    'cluster-cert': cert,
    'cluster-key': key,
    'cluster-ca-cert': trust.agents.cert,
  };
}

async function peerFlags(trust: Trust, role: PeerRole): Promise<Flags> {
  const { cert, key } = await trust.peers.peer([role]);
  return { 'peer-cert': cert, 'peer-key': key, 'peer-ca-cert': trust.peers.cert };
}

import { writeFile } from 'node:fs/promises';
import test from 'node:test';
import {
  type AllInOne,
  agentPortFlags,
  type Back,
  egressConfigs,
  type Flags,
  type Front,
  freePort,
  goMissing,
  healthFlags,
  isUp,
  newTrust,
  type Program,
  peer,
  type Scope,
  scoped,
  startAgent,
  startCommand,
  startServer,
  type Trust,
  uplinkFlags,
  type Ways,
} from '../harness/index.ts';

export type Make = 'our' | 'Go';

/** Who made the server and the agents of a rig. */
export interface Makes {
  readonly server: Make;
  readonly agent: Make;
}

export interface Rig extends AllInOne {
  readonly makes: Makes;
  /** Another agent of the rig's make; not ready yet. */
  startAgent(flags?: Flags): Promise<Program>;
}

export interface RigOptions {
  readonly agents?: number;
  readonly serverFlags?: Flags;
  readonly agentFlags?: Flags;
}

/** All pairs in which one of ours takes part, and the Go pair: what that one does is what a test may ask of ours. */
export const EVERY_PAIR: readonly Makes[] = [
  { server: 'our', agent: 'our' },
  { server: 'our', agent: 'Go' },
  { server: 'Go', agent: 'our' },
  { server: 'Go', agent: 'Go' },
];
export const OUR_SERVER = EVERY_PAIR.filter(({ server }) => server === 'our');

const missing = goMissing();

/** One test for each pair of a server and an agent, each of which holds the same behaviour. */
export function across(
  pairs: readonly Makes[],
  behaviour: string,
  body: (scope: Scope, rig: (options?: RigOptions) => Promise<Rig>, makes: Makes) => Promise<void>,
): void {
  for (const makes of pairs) {
    const skip = makes.server === 'Go' || makes.agent === 'Go' ? missing : false;
    const name = `${behaviour} (${makes.server} server, ${makes.agent} agent)`;
    const run = scoped((scope) => body(scope, (options) => startRig(scope, makes, options), makes));
    test(name, { skip }, run);
  }
}

/** A server and its agents, all ready. */
async function startRig(scope: Scope, makes: Makes, options: RigOptions = {}): Promise<Rig> {
  const trust = await newTrust(scope);
  const server = await startServerOf(scope, makes.server, trust, options.serverFlags);
  const more = (flags: Flags = {}) =>
    startAgentOf(scope, makes.agent, trust, server.agentPort, { ...options.agentFlags, ...flags });
  const agents = await Promise.all(
    Array.from({ length: options.agents ?? 1 }, (_, index) => more({ 'agent-id': `agent-${index}` })),
  );
  await Promise.all([server.program, ...agents].map((program) => program.waitReady()));
  return { makes, trust, server, agents, startAgent: more };
}

export function startServerOf(scope: Scope, make: Make, trust: Trust, flags: Flags = {}): Promise<Front & Back> {
  return make === 'our' ? startServer(scope, trust, flags) : startGoServer(scope, trust, flags);
}

export function startAgentOf(
  scope: Scope,
  make: Make,
  trust: Trust,
  port: number,
  flags: Flags = {},
): Promise<Program> {
  return make === 'our' ? startAgent(scope, trust, port, flags) : startGoAgent(scope, trust, port, flags);
}

async function startGoAgent(scope: Scope, trust: Trust, port: number, flags: Flags): Promise<Program> {
  const { healthPort, ...own } = await uplinkFlags(trust, port);
  return startCommand(scope, [await peer(), 'agent'], { flags: { ...own, v: 4, ...flags }, healthPort });
}

async function startGoServer(scope: Scope, trust: Trust, flags: Flags): Promise<Front & Back> {
  const agentPort = await freePort();
  const { 'health-port': healthPort } = await healthFlags();
  const { cert, key } = await trust.callers.server();
  const port = await freePort();
  const grpc = { uds: `${trust.dir}/${port}-grpc.sock` };
  const connect = { uds: `${trust.dir}/${port}-connect.sock` };
  const own = {
    'grpc-uds-name': grpc.uds,
    'connect-uds-name': connect.uds,
    'server-port': port,
    'server-cert': cert,
    'server-key': key,
    'server-ca-cert': trust.callers.cert,
    'health-port': healthPort,
    v: 4,
  };
  const all = { ...own, ...(await agentPortFlags(trust, agentPort)), ...flags };
  const program = startCommand(scope, [await peer(), 'server'], { flags: all, healthPort });
  await isUp(program);
  return { program, grpc, connect, mtls: { port, ca: trust.callers.cert, identity: trust.caller }, agentPort };
}

/** Paths of egress configurations, by the transport they name. */
export async function writeEgressConfigs(trust: Trust, front: Ways): Promise<Map<string, string>> {
  const paths = new Map<string, string>();
  for (const [transport, text] of Object.entries(egressConfigs(front))) {
    const path = `${trust.dir}/egress-${paths.size}.yaml`;
    await writeFile(path, text);
    paths.set(transport, path);
  }
  return paths;
}

import assert from 'node:assert/strict';
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
  SLOW_TESTS,
  scoped,
  sharedByFile,
  startAgent,
  startCommand,
  startServer,
  type Trust,
  until,
  uplinkFlags,
  type Ways,
} from '../harness/index.ts';

export type Make = 'our' | 'Go';

/** Whose server and whose agents a rig runs. */
export interface Makes {
  readonly server: Make;
  readonly agent: Make;
}

export interface Rig extends AllInOne {
  readonly makes: Makes;
  /** Starts another agent of the rig's make, and does not wait until it is ready. */
  startAgent(flags?: Flags): Promise<Program>;
}

export interface RigOptions {
  readonly agents?: number;
  readonly serverFlags?: Flags;
  readonly agentFlags?: Flags;
}

const OUR_PAIRS: readonly Makes[] = [
  { server: 'our', agent: 'our' },
  { server: 'our', agent: 'Go' },
  { server: 'Go', agent: 'our' },
];
const GO_PAIR: Makes = { server: 'Go', agent: 'Go' };

/**
 * All pairs with at least one of our programs. Slow runs add the Go pair, which shows that a test asks nothing of ours that ANP does not
 * do; only a changed test needs that again.
 */
export const EVERY_PAIR: readonly Makes[] = SLOW_TESTS ? [...OUR_PAIRS, GO_PAIR] : OUR_PAIRS;
export const OUR_SERVER = EVERY_PAIR.filter(({ server }) => server === 'our');

const missing = goMissing();

/** Starts a server and its agents for a test, or what of them it does not share. */
type Start = (options?: RigOptions) => Promise<Rig>;

/**
 * Registers one test for each pair of a server and an agent: all must behave the same. Each test has a rig of its own.
 * @param callers whose programs dial
 */
export function across(
  pairs: readonly Makes[],
  behaviour: string,
  body: (scope: Scope, rig: Start, makes: Makes) => Promise<void>,
  callers?: Make,
): void {
  acrossWith(pairs, behaviour, body, startRig, callers);
}

/**
 * Returns an `across` whose tests share one rig for each pair, for tests that leave it unchanged. A rig with its own options is not shared.
 * Call it once in a file: its rigs end with the file.
 */
export function acrossShared(): typeof across {
  const rigs = new Map(EVERY_PAIR.map((makes) => [makes, sharedByFile((scope) => startRig(scope, makes))]));
  return (pairs, behaviour, body, callers) => {
    const start: typeof startRig = (own, makes, options) =>
      options ? startRig(own, makes, options) : (rigs.get(makes) as () => Promise<Rig>)();
    acrossWith(pairs, behaviour, body, start, callers);
  };
}

/**
 * Returns an `across` whose tests share one server for each make, for tests that change agents only: each has agents of its own. Call it once in a
 * file: its servers end with the file.
 */
export function acrossSharedServers(): typeof across {
  const shared = (make: Make) => sharedByFile((scope) => startServerAlone(scope, make));
  const servers = { our: shared('our'), Go: shared('Go') };
  return (pairs, behaviour, body, callers) => {
    const start: typeof startRig = async (own, makes, options) => {
      assert.equal(options?.serverFlags, undefined, 'the server is shared');
      return startRig(own, makes, options, await free(await servers[makes.server]()));
    };
    acrossWith(pairs, behaviour, body, start, callers);
  };
}

/** A server, and the trust that it was started with. */
type Served = Pick<Rig, 'trust' | 'server'>;

async function startServerAlone(scope: Scope, make: Make, flags?: Flags): Promise<Served> {
  const trust = await newTrust(scope);
  return { trust, server: await startServerOf(scope, make, trust, flags) };
}

/** Waits until the agents of earlier tests are gone from a server. */
async function free(served: Served): Promise<Served> {
  const { program } = served.server;
  const backends = async () => [...(await program.metric('konnectivity_network_proxy_server_ready_backends')).values()];
  await until(async () => (await backends()).every((each) => each === 0), { what: 'the end of earlier agents' });
  return served;
}

function acrossWith(
  pairs: readonly Makes[],
  behaviour: string,
  body: Parameters<typeof across>[2],
  start: typeof startRig,
  callers: Make = 'our',
): void {
  for (const makes of pairs) {
    const skip = [callers, makes.server, makes.agent].includes('Go') ? missing : false;
    const name = `${behaviour} (${makes.server} server, ${makes.agent} agent)`;
    test(
      name,
      { skip },
      scoped((scope) => body(scope, (options) => start(scope, makes, options), makes)),
    );
  }
}

/** Starts agents and, unless there is one, their server, and waits until all are ready. */
async function startRig(scope: Scope, makes: Makes, options: RigOptions = {}, served?: Served): Promise<Rig> {
  const { trust, server } = served ?? (await startServerAlone(scope, makes.server, options.serverFlags));
  const more = (flags: Flags = {}) =>
    startAgentOf(scope, makes.agent, trust, server.agentPort, { ...options.agentFlags, ...flags });
  const agents = await Promise.all(
    Array.from({ length: options.agents ?? 1 }, (_, index) => more({ 'agent-id': `agent-${index}` })),
  );
  // Without an agent, a server is not ready.
  if (agents.length > 0) await Promise.all([server.program, ...agents].map((program) => program.waitReady()));
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

/** Writes an egress configuration for each transport. Returns their paths by transport. */
export async function writeEgressConfigs(trust: Trust, front: Ways): Promise<Map<string, string>> {
  const paths = new Map<string, string>();
  for (const [transport, text] of Object.entries(egressConfigs(front))) {
    const path = `${trust.dir}/egress-${paths.size}.yaml`;
    await writeFile(path, text);
    paths.set(transport, path);
  }
  return paths;
}

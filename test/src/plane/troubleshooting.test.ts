import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  Authority,
  allInOne,
  eventually,
  type Flags,
  freePort,
  newTrust,
  type Program,
  peerFlags,
  ROOT,
  refused,
  scoped,
  startAgent,
  startGateway,
  startHub,
  startServer,
} from '../harness/index.ts';
import { asked, isthmus } from './operator.ts';

interface Made {
  readonly flags: readonly { readonly program: string; readonly flags: readonly string[] }[];
}

/** `--name=value` by name. */
function flagsOf(given: readonly string[]): Flags {
  return Object.fromEntries(given.map((flag) => flag.slice(2).split('=')));
}

/** `isthmus certs` connects to nothing. */
const NOWHERE = { adminPort: 1 };

const PARK = { 'dial-park-timeout': '200ms' };

/** Returns the commands that OPERATE.md lists for a cause, and what each prints. */
function told(cause: string): { readonly args: string[]; readonly prints: string }[] {
  const rows = readFileSync(`${ROOT}docs/OPERATE.md`, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(`| ${cause} | `));
  assert.ok(rows.length > 0, `OPERATE.md has no row for: ${cause}`);
  return rows.map((row) => {
    const [command = '', prints = ''] = [...row.matchAll(/`([^`]+)`/g)].map(([, text]) => text);
    return { args: command.split(' ').slice(1), prints };
  });
}

/** Runs the commands in OPERATE.md and checks their output, where `...` stands for any text. */
async function follow(
  cause: string,
  at: {
    readonly program: Program;
    readonly agent?: Program;
    readonly values: Readonly<Record<string, string>>;
    /** Other agents are healthy, so dials use them and the plane is ready. The agent's own output is not checked. */
    readonly besideHealthy?: true;
    /** Flags for the program's admin port. An agent's admin port has no TLS. */
    readonly options?: readonly string[];
  },
) {
  for (const { args, prints } of told(cause)) {
    const address = args.indexOf('--address');
    if (at.besideHealthy && (args[0] === 'dial' || address >= 0)) continue;
    const program = address < 0 ? at.program : at.agent;
    assert.ok(program);
    const own = (address < 0 ? args : args.toSpliced(address, 2)).map((arg) => at.values[arg] ?? arg);
    const pattern = prints
      .split('...')
      .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .join('.*');
    // One process may see a moment later what another has seen.
    await eventually(async () => {
      const { status, out, err } = await isthmus(program, ...own, ...(address < 0 ? (at.options ?? []) : []));
      assert.match(out, new RegExp(pattern), `${cause}: isthmus ${own.join(' ')}: ${err}`);
      // All members work then, and the status says that somebody is refused.
      const ready = at.besideHealthy && address < 0 && args[0] === 'status';
      assert.equal(status, ready ? 4 : 1, `${cause}: isthmus ${own.join(' ')}`);
    });
  }
}

describe('OPERATE.md leads to the cause of a failed dial', { concurrency: true }, () => {
  it(
    'where an agent trusts another authority',
    scoped(async (scope) => {
      const trust = await newTrust(scope);
      const { program, agentPort } = await startServer(scope, trust, PARK);
      const foreign = await Authority.create(trust.dir, 'foreign');
      const agent = await startAgent(scope, trust, agentPort, { 'ca-cert': foreign.cert });
      await agent.waitForLog(({ msg }) => msg === 'server connection failed', {
        what: 'a refusal',
      });
      const values = { 'HOST:PORT': '127.0.0.1:1', 'ca.pem': foreign.cert };
      await follow('the agent trusts another CA', { program, agent, values });
    }),
  );

  it(
    'where an agent beside healthy ones trusts another authority, with certificates of isthmus certs',
    scoped(async (scope) => {
      const { dir } = await newTrust(scope);
      const [own, foreign] = [join(dir, 'pki'), join(dir, 'foreign')];
      const made = await asked<Made>(NOWHERE, 'certs', own, '--agent', 'node-a', '--agent', 'node-b');
      await isthmus(NOWHERE, 'certs', foreign, '--agent', 'node-a');
      const given = (name: string) => made.flags.find(({ program }) => program.startsWith(name))?.flags ?? [];
      const { program, agentPort } = await startServer(scope, await newTrust(scope), flagsOf(given('proxy-server')));
      const ofAgents = flagsOf(given('proxy-agent'));
      const healthy = await startAgent(scope, await newTrust(scope), agentPort, ofAgents);
      const ca = String(ofAgents['ca-cert']).replace(own, foreign);
      const agent = await startAgent(scope, await newTrust(scope), agentPort, {
        ...ofAgents,
        'agent-id': 'node-b',
        'ca-cert': ca,
      });
      await healthy.waitReady();
      await agent.waitForLog(({ msg }) => msg === 'server connection failed', { what: 'a refusal' });
      const values = { 'HOST:PORT': '127.0.0.1:1', 'ca.pem': ca };
      const at = { program, agent, values, besideHealthy: true as const };
      await follow('the agent trusts another CA', { ...at, options: given('isthmus') });
    }),
  );

  it(
    "where the hub rejects the agent's certificate",
    scoped(async (scope) => {
      const trust = await newTrust(scope);
      const { program, agentPort } = await startServer(scope, trust, PARK);
      const { cert, key } = await trust.agents.expired('agent');
      const agent = await startAgent(scope, trust, agentPort, { 'agent-cert': cert, 'agent-key': key });
      await agent.waitForLog(({ msg }) => msg === 'server connection failed', { what: 'a refusal' });
      await follow("the hub rejects the agent's certificate", {
        program,
        agent,
        values: { 'HOST:PORT': '127.0.0.1:1' },
      });
    }),
  );

  it(
    'where no agent serves the network, and where the destination refuses',
    scoped(async (scope) => {
      const serverFlags = { 'proxy-strategies': 'destCIDR', ...PARK };
      const agentFlags = { 'agent-identifiers': 'cidr=127.0.0.0/8' };
      const { program } = (await allInOne(scope, { serverFlags, agentFlags })).server;
      await follow('no agent serves its network', { program, values: { 'HOST:PORT': '10.1.2.3:443' } });
      await follow('the destination refuses', { program, values: { 'HOST:PORT': await refused() } });
    }),
  );

  it(
    'where a gateway cannot reach a hub, and where Redis is down',
    { skip: redisMissing() },
    scoped(async (scope) => {
      const trust = await newTrust(scope);
      const redis = await startRedis();
      scope.defer(() => redis.stop());
      const plane: Flags = { 'redis-url': redis.url, plane: 'test', ...PARK };
      const { 'dial-park-timeout': _, ...ofHub } = plane;
      const hub = await startHub(scope, trust, { ...ofHub, 'advertise-address': `127.0.0.1:${await freePort()}` });
      const agent = await startAgent(scope, trust, hub.agentPort);
      const { program } = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)) });
      await agent.waitReady();
      // The gateway knows of it, and reaches no hub that does.
      await eventually(async () => assert.match((await isthmus(program, 'agents')).out, / suspect /));
      const values = { 'HOST:PORT': '127.0.0.1:1', URL: redis.url };
      await follow('the gateway does not reach the hub', { program, values });
      await redis.kill();
      const late = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)) });
      await late.program.waitForLog(({ msg }) => msg === 'registry is down', { what: 'the loss' });
      await follow('Redis is down', { program: late.program, values });
    }),
  );
});

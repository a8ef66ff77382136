import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  connectThrough,
  echo,
  newTrust,
  type Program,
  peerFlags,
  refused,
  Scope,
  scoped,
  startAgent,
  startGateway,
  startHub,
  startServer,
  tunnelThrough,
  until,
} from '../harness/index.ts';
import { adminOf } from '../plane/dials.ts';
import { goesTo } from './rig.ts';

/** The identifiers of each agent. All of them reach all of loopback, so only the strategy decides. */
const AGENTS = {
  plain: '',
  route: 'default-route=true',
  four: 'ipv4=127.0.0.2',
  six: 'ipv6=::1',
  named: 'host=localhost',
  wide: 'cidr=127.0.0.0/8',
  narrow: 'cidr=127.0.0.0/28&cidr=::/64',
} as const;

type AgentName = keyof typeof AGENTS;

const ANY = Object.keys(AGENTS) as AgentName[];

/** The agents that may get the dial, by the host dialled. An empty list means that no agent is available. */
type Expected = Readonly<Record<string, readonly AgentName[]>>;

const TABLE: Readonly<Record<string, Expected>> = {
  default: { '127.0.0.1': ANY, '::1': ANY, localhost: ANY },
  defaultRoute: { '127.0.0.1': ['route'], '::1': ['route'], localhost: ['route'] },
  destHost: { '127.0.0.2': ['four'], '::1': ['six'], localhost: ['named'], '127.0.0.3': [] },
  destCIDR: { '127.0.0.2': ['narrow'], '127.0.0.99': ['wide'], '::1': ['narrow'], localhost: [] },
  'destHost,destCIDR': { '127.0.0.2': ['four'], '127.0.0.3': ['narrow'], '127.0.0.99': ['wide'] },
  'destCIDR,destHost,defaultRoute': { '127.0.0.2': ['narrow'], localhost: ['named'] },
  'destHost,defaultRoute': { '127.0.0.2': ['four'], '127.0.0.3': ['route'] },
  'destHost,default': { localhost: ['named'], '127.0.0.3': ANY },
};

test('each gateway of a plane finds agents by its own --proxy-strategies', { skip: redisMissing() }, async (t) => {
  await using scope = new Scope();
  const { gatewayWith, agents } = await plane(scope);
  const targets = await listeners(scope);
  // Each test starts a gateway of its own; agents and their hub are the same for all.
  for (const [strategies, expected] of Object.entries(TABLE)) {
    await t.test(strategies, async () => {
      await using own = new Scope();
      const gateway = await gatewayWith(own, strategies);
      const { connect } = gateway;
      for (const [host, names] of Object.entries(expected)) {
        const destination = targets(host);
        if (names.length === 0) {
          const { status, reason } = await connectThrough(own, { via: connect, destination });
          assert.deepEqual([status, /No agent available/.test(reason)], [503, true], host);
          continue;
        }
        const allowed = names.map((name) => agents.get(name) as Program);
        const act = () => tunnelThrough(own, { via: connect, destination });
        await goesTo(gateway, [...agents.values()], allowed, act, `a dial to ${host}`);
      }
    });
  }
});

test(
  'a dial for which the strategy finds no agent is refused and counted as no_agent',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust, { 'proxy-strategies': 'destHost' });
    const agent = await startAgent(scope, trust, server.agentPort, { 'agent-identifiers': AGENTS.named });
    await agent.waitReady();
    const { status } = await connectThrough(scope, { via: server.connect, destination: await refused() });
    assert.equal(status, 503);
    const samples = await server.program.metric('konnectivity_network_proxy_server_dial_failure_count');
    assert.equal(samples.get('{reason="no_agent"}'), 1);
  }),
);

/** A hub with an agent of each kind, and a function that starts a gateway which knows all of them. */
async function plane(scope: Scope) {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const flags = { 'redis-url': redis.url, plane: 'test' };
  const hub = await startHub(scope, trust, flags);
  const agents = new Map<AgentName, Program>();
  for (const [name, identifiers] of Object.entries(AGENTS) as [AgentName, string][]) {
    const own = { 'agent-id': name, 'agent-identifiers': identifiers };
    agents.set(name, await startAgent(scope, trust, hub.agentPort, own));
  }
  const gatewayWith = async (own: Scope, strategies: string) => {
    const peer = await peerFlags(trust, ['gateway']);
    const gateway = await startGateway(own, trust, { ...flags, ...peer, 'proxy-strategies': strategies });
    const known = async () => (await adminOf(own, gateway.program).listSessions({})).sessions.length;
    await until(async () => (await known()) === agents.size, { what: 'the sessions of all agents' });
    return gateway;
  };
  return { gatewayWith, agents };
}

/** Starts echoes on all of loopback. Returns the destination for a host. */
async function listeners(scope: Scope): Promise<(host: string) => string> {
  const four = await echo(scope, { host: '0.0.0.0' });
  const six = await echo(scope, { host: '::1' });
  return (host) => (host === '::1' ? six.authority : `${host}:${four.port}`);
}

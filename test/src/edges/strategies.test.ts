import assert from 'node:assert/strict';
import test from 'node:test';
import {
  connectThrough,
  echo,
  newTrust,
  type Program,
  refused,
  type Scope,
  scoped,
  startAgent,
  startServer,
} from '../harness/index.ts';
import { dial, type Edge, edgesOf, taker } from './rig.ts';

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

const ANY: readonly AgentName[] = ['plain', 'route', 'named', 'wide'];

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
  'destHost,default': { localhost: ['named'], '127.0.0.3': ['plain', 'named', 'wide'] },
};

for (const [strategies, expected] of Object.entries(TABLE)) {
  test(
    `--proxy-strategies=${strategies} finds the agent by its identifiers`,
    scoped(async (scope) => {
      const { connect, agents } = await plane(scope, strategies);
      const targets = await listeners(scope);
      for (const [host, names] of Object.entries(expected)) {
        const destination = targets(host);
        if (names.length === 0) {
          const { status, reason } = await connectThrough(scope, { via: connect.via, destination });
          assert.deepEqual([status, /No agent available/.test(reason)], [503, true], host);
          continue;
        }
        const got = await taker([...agents.values()], () => dial(scope, connect, destination));
        const name = [...agents].find(([, agent]) => agent === got)?.[0] as AgentName;
        assert.ok(names.includes(name), `${host} went to ${name}, not to ${names}`);
      }
    }),
  );
}

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

async function plane(scope: Scope, strategies: string) {
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'proxy-strategies': strategies });
  // Plus at least one agent that must not be chosen, except by the strategy that takes any.
  const wanted = new Set<AgentName>([...Object.values(TABLE[strategies] as Expected).flat(), 'plain', 'wide']);
  const agents = new Map<AgentName, Program>();
  for (const name of wanted) {
    const flags = { 'agent-id': name, 'agent-identifiers': AGENTS[name] };
    agents.set(name, await startAgent(scope, trust, server.agentPort, flags));
  }
  await Promise.all([...agents.values()].map((agent) => agent.waitReady()));
  const connect = edgesOf(server).find(({ name }) => name === 'CONNECT over UDS') as Edge;
  return { connect, agents };
}

/** Starts echoes on all of loopback. Returns the destination for a host. */
async function listeners(scope: Scope): Promise<(host: string) => string> {
  const four = await echo(scope, { host: '0.0.0.0' });
  const six = await echo(scope, { host: '::1' });
  return (host) => (host === '::1' ? six.authority : `${host}:${four.port}`);
}

import assert from 'node:assert/strict';
import test from 'node:test';
import { redisMissing } from '@isthmus/registry/testing';
import { echo, type Front, type Program, Scope, type Split, split, startAgent, until } from '../harness/index.ts';
import { adminOf, carries, dial, PROTOCOLS } from './dials.ts';

const AGENTS = 4;
/** A session must be known at every gateway so soon after its start, in milliseconds. */
const KNOWN_WITHIN = 1000;
/** Another try for a machine that was busy with something else: a plane that is slower than that by design fails each. */
const TRIES = 3;

/** All of 127/8 is this machine: each agent is the only one that announces its address. */
function addressOf(index: number): string {
  return `127.0.1.${index + 1}`;
}

function agentFlags(index: number) {
  return { 'agent-identifiers': `ipv4=${addressOf(index)}`, 'session-count': 2 };
}

/** The agents through which a gateway says it dialled a destination, once it has said it so often. */
function agentsOf({ program }: Front, destination: string, dials: number): Promise<unknown[]> {
  const said = () => {
    const lines = program.logs.filter((line) => line.msg === 'dial established' && line.destination === destination);
    return lines.length === dials && lines.map(({ agent }) => agent);
  };
  return until(said, { what: `${dials} lines about ${destination}` });
}

async function openServers(agent: Program): Promise<number | undefined> {
  return (await agent.metric('konnectivity_network_proxy_agent_open_server_connections')).get('{}');
}

/** Milliseconds from an agent's first session to when each gateway knew of it. */
async function knownAfter(scope: Scope, { gateways }: Split, agentId: string): Promise<number[]> {
  return Promise.all(
    gateways.map(async ({ program }) => {
      const admin = adminOf(scope, program);
      const find = async () => (await admin.listSessions({})).sessions.find((session) => session.agentId === agentId);
      const { sinceMs } = await until(find, { what: `${program.name} to know of ${agentId}` });
      return Date.now() - Number(sinceMs);
    }),
  );
}

test('two gateways, two hubs, four agents, and mutual TLS between them', { skip: redisMissing() }, async (t) => {
  await using scope = new Scope();
  const plane = await split(scope, { agents: AGENTS, agentFlags, gatewayFlags: { 'proxy-strategies': 'destHost' } });
  const { gateways, hubs, agents, trust } = plane;

  await t.test('an agent that knows one hub has a session to both', async () => {
    for (const agent of agents) {
      await until(async () => (await openServers(agent)) === 2, { what: 'two sessions' });
    }
    const sessions = await Promise.all(
      hubs.map(async ({ program }) => (await adminOf(scope, program).listSessions({})).sessions),
    );
    const expected = agents.map((_, index) => `agent-${index}`);
    assert.deepEqual(
      sessions.map((list) => list.map(({ agentId }) => agentId).sort()),
      [expected, expected],
    );
  });

  await t.test('every gateway reaches every agent over every protocol', async () => {
    for (let index = 0; index < AGENTS; index++) {
      const destination = await echo(scope, { host: addressOf(index) });
      for (const gateway of gateways) {
        const { authority } = destination;
        for (const protocol of PROTOCOLS) {
          const tunnel = await dial(scope, gateway, protocol, authority);
          await carries(tunnel);
          tunnel.destroy();
        }
        const taken = PROTOCOLS.map(() => `agent-${index}`);
        assert.deepEqual(await agentsOf(gateway, authority, PROTOCOLS.length), taken);
      }
    }
  });

  let latest: Program | undefined;
  let index = AGENTS;

  await t.test('a new session is known at every gateway within a second', async () => {
    const times: number[] = [];
    while (times.length < TRIES && !(Math.min(...times) <= KNOWN_WITHIN)) {
      index++;
      const agentId = `agent-${index}`;
      const flags = { 'agent-id': agentId, ...agentFlags(index) };
      latest = await startAgent(scope, trust, hubs[0]?.agentPort as number, flags);
      times.push(Math.max(...(await knownAfter(scope, plane, agentId))));
    }
    assert.ok(Math.min(...times) <= KNOWN_WITHIN, `known after ${times.join(', ')} ms`);
    const destination = await echo(scope, { host: addressOf(index) });
    for (const gateway of gateways) await carries(await dial(scope, gateway, 'connect', destination.authority));
  });

  await t.test('no gateway uses an agent that was killed', async () => {
    await latest?.kill();
    const { authority } = await echo(scope, { host: addressOf(index) });
    for (const gateway of gateways) {
      await assert.rejects(dial(scope, gateway, 'grpc', authority), /No agent available/);
      await assert.rejects(dial(scope, gateway, 'connect', authority), /503 .*No agent available/);
    }
    const known = async ({ program }: Front) => {
      const { sessions } = await adminOf(scope, program).listSessions({});
      return sessions.some(({ agentId }) => agentId === `agent-${index}`);
    };
    for (const gateway of gateways) {
      await until(async () => !(await known(gateway)), { what: 'the session to be forgotten' });
    }
  });
});

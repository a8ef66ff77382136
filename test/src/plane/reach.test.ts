import assert from 'node:assert/strict';
import test from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  type Back,
  echo,
  type Front,
  type LogLine,
  type Program,
  Scope,
  split,
  startAgent,
  until,
} from '../harness/index.ts';
import { adminOf, carries, dial, PROTOCOLS } from './dials.ts';

const AGENTS = 4;

/** Each agent is the only one that announces its address. All of 127/8 is this machine. */
function addressOf(index: number): string {
  return `127.0.1.${index + 1}`;
}

function agentFlags(index: number) {
  return { 'agent-identifiers': `ipv4=${addressOf(index)}`, 'session-count': 2 };
}

/** Returns the agents that a gateway dialled a destination through, once it has logged `dials` dials. */
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

async function knows(scope: Scope, { program }: Front | Back, agentId: string): Promise<boolean> {
  const { sessions } = await adminOf(scope, program).listSessions({});
  return sessions.some((session) => session.agentId === agentId);
}

test('two gateways, two hubs, four agents, and mutual TLS between them', { skip: redisMissing() }, async (t) => {
  await using scope = new Scope();
  const plane = await split(scope, {
    agents: AGENTS,
    agentFlags,
    gatewayFlags: { v: 5, 'proxy-strategies': 'destHost' },
  });
  const { gateways, hubs, agents, trust } = plane;

  await t.test('an agent that knows one hub has a session to both', async () => {
    for (const agent of agents) {
      await until(async () => (await openServers(agent)) === 2, { what: 'two sessions' });
    }
    const expected = agents.map((_, index) => `agent-${index}`);
    for (const { program } of hubs) {
      let found: string[] = [];
      // Where processors are few, an agent may just have lost a session, and connects again.
      const all = async () => {
        const { sessions } = await adminOf(scope, program).listSessions({});
        found = sessions.map(({ agentId }) => agentId).sort();
        return isDeepStrictEqual(found, expected);
      };
      await until(all, { what: () => `the sessions of ${expected} among ${found}` });
    }
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

  const late = 'agent-late';
  const { authority } = await echo(scope, { host: addressOf(AGENTS) });
  let agent: Program | undefined;

  await t.test('a new session is known at every gateway', async () => {
    const flags = { ...agentFlags(AGENTS), 'agent-id': late };
    agent = await startAgent(scope, trust, hubs[0]?.agentPort as number, flags);
    for (const gateway of gateways) {
      await until(() => knows(scope, gateway, late), { what: `${gateway.program.name} to know of ${late}` });
      await carries(await dial(scope, gateway, 'connect', authority));
    }
    await until(async () => (await openServers(agent as Program)) === 2, { what: 'two sessions' });
  });

  await t.test('no gateway uses a killed agent', async () => {
    await agent?.kill();
    // Once the hubs know, it does not matter how old a gateway's copy is.
    for (const { program } of hubs) {
      const isEnd = (line: LogLine) => line.msg === 'session closed' && line.agent === late;
      await program.waitForLog(isEnd, { what: `the end of the session of ${late}` });
    }
    for (const gateway of gateways) {
      await assert.rejects(dial(scope, gateway, 'grpc', authority), /No agent available/);
      await assert.rejects(dial(scope, gateway, 'connect', authority), /503 .*No agent available/);
    }
    for (const gateway of gateways) {
      await until(async () => !(await knows(scope, gateway, late)), { what: 'the session to be forgotten' });
    }
  });
});

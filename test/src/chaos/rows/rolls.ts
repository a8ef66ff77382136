import type { Member, Scope } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';
import { LONG_TUNNELS } from '../run-row.ts';

/** How long each process may let its tunnels finish, and how far apart the restarts of a tier are. */
const EACH_MS = 10_000;
/** How long a process must be ready before the next one restarts, like a Deployment's minReadySeconds. */
const READY_FOR_MS = 2000;
/** How long a process may take to end once it has let everything finish. */
const SLACK_MS = 5000;

/** How long a roll of all hubs may take, however long tunnels live. */
const ALL_WITHIN = 30_000;

/** Every tunnel can finish in the time that each process has. */
const seconds = (short: boolean) => (short ? ([500, 3000] as const) : ([1000, 6000] as const));

/** Of tunnels that hold agents up. */
const minutes = (short: boolean) => (short ? ([2000, 6000] as const) : ([60_000, 120_000] as const));
/** How long an agent may take to drain under them. */
const DRAINED_WITHIN = 150_000;

function topology(scope: Scope): Promise<Plane> {
  const flags = { 'graceful-shutdown-timeout': `${EACH_MS}ms` };
  return startPlane(scope, { planeFlags: flags });
}

async function roll({ hold }: Context<Plane>, members: readonly Member[]): Promise<void> {
  for (const member of members) {
    const begin = clock();
    await member.roll(EACH_MS + SLACK_MS);
    await hold(Math.max(READY_FOR_MS, EACH_MS - (clock() - begin)), READY_FOR_MS);
  }
}

function rolling(name: string, tier: 'hubs' | 'gateways' | 'agents'): Row<Plane> {
  return {
    name,
    fault: `rolling restart of all ${tier} (SIGTERM, ${EACH_MS / 1000} s each)`,
    holds: '0 failed dials; 0 cut tunnels that could have finished',
    bounds: {},
    tunnelLife: seconds,
    topology,
    inject: (context) => roll(context, context.plane[tier]),
  };
}

/** Tunnels that would live for hours hold up nothing: hubs hand them over. */
const live: Row<Plane> = {
  name: 'roll-hubs-live',
  fault: 'rolling restart of all hubs (SIGTERM, an hour each) under tunnels that live on',
  holds: '0 failed dials; 0 cut tunnels; pauses of at most 500 ms; 3 hubs within 30 s',
  bounds: { pauseMs: 500 },
  topology: (scope) => startPlane(scope, { planeFlags: { 'graceful-shutdown-timeout': '1h' } }),
  async inject({ plane, strike, hold, measure }) {
    const begin = clock();
    for (const hub of plane.hubs) {
      await strike({ touches: ({ hubId }) => hubId === hub.id }, () => hub.roll(ALL_WITHIN));
      await hold(READY_FOR_MS, READY_FOR_MS);
    }
    measure(`${plane.hubs.length} hubs rolled in`, clock() - begin, 'ms', ALL_WITHIN);
  },
};

/** As a Deployment that may lack half of its agents. */
const patient: Row<Plane> = {
  name: 'roll-agents-live',
  fault:
    'rolling restart of all agents (SIGTERM, until their last tunnel has ended), half of them at a time, under tunnels that live for minutes',
  holds: '0 failed dials; 0 cut tunnels',
  bounds: {},
  tunnelLife: minutes,
  topology: (scope) => startPlane(scope),
  async inject({ plane, hold, measure }) {
    const { agents } = plane;
    const half = agents.length / 2;
    let slowest = 0;
    let carried = 0;
    for (const rolled of [agents.slice(0, half), agents.slice(half)]) {
      carried += await tunnelsOn(plane, rolled);
      const begin = clock();
      await Promise.all(rolled.map((agent) => agent.roll(DRAINED_WITHIN)));
      slowest = Math.max(slowest, clock() - begin);
      await hold(READY_FOR_MS, READY_FOR_MS);
    }
    measure('long tunnels on agents as they began to drain', carried);
    measure('agents were replaced after at most', slowest, 'ms');
  },
};

async function tunnelsOn(plane: Plane, agents: readonly Member[]): Promise<number> {
  const carried = (await plane.carried()).filter(({ agentId }) => agents.some(({ id }) => id === agentId)).length;
  if (carried === 0) throw new Error('no long tunnel runs through the agents that leave: nothing would be shown');
  return carried;
}

/** What a deletion cost brings about: the empty agents go. */
const scaled: Row<Plane> = {
  name: 'scale-agents',
  fault: 'scale-down from 6 agents to 2 under long tunnels, all on 2 of them: the empty ones leave',
  holds: '0 failed dials; 0 cut tunnels; the empty agents leave within 10 s',
  bounds: {},
  topology: (scope) =>
    startPlane(scope, {
      ...{ hubs: 2, gateways: 1, agents: 6 },
      gatewayFlags: { 'proxy-strategies': 'destHost,default' },
      agentFlags: (index) => (index < 2 ? { 'agent-identifiers': halfOfTunnels(index) } : {}),
    }),
  async inject({ plane, hold, measure }) {
    const empty = plane.agents.slice(2);
    const begin = clock();
    await Promise.all(
      empty.map(async (agent) => {
        plane.agents.splice(plane.agents.indexOf(agent), 1);
        agent.program.signal('SIGTERM');
        const { code } = await agent.program.ended(DRAINED_WITHIN);
        if (code !== 0) throw new Error(await agent.epitaph());
      }),
    );
    measure('they left after at most', clock() - begin, 'ms', EACH_MS);
    measure('long tunnels on the others', await tunnelsOn(plane, plane.agents));
    await hold(5000, 1000);
  },
};

/** Long tunnels are told apart by their destinations' addresses. */
function halfOfTunnels(index: number): string {
  const tunnels = Array.from({ length: LONG_TUNNELS }, (_, tunnel) => tunnel).filter((tunnel) => tunnel % 2 === index);
  return tunnels.map((tunnel) => `ipv4=127.0.1.${tunnel + 1}`).join('&');
}

export const rollRows: readonly Row<Plane>[] = [
  rolling('roll-hubs', 'hubs'),
  live,
  rolling('roll-gateways', 'gateways'),
  rolling('roll-agents', 'agents'),
  patient,
  scaled,
];

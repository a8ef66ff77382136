import { goMissing, type Member } from '../../harness/index.ts';
import { type Carried, type Plane, startPlane } from '../../rig/plane.ts';
import { type Context, RESTART_AFTER, type Row } from '../row.ts';

const FAULT = '3 all-in-one servers, 6 agents (2 of them Go agents)';
const HOLDS = '0 failed dials for any caller';
/** How long each process may let its tunnels finish, in milliseconds. */
const EACH_MS = 10_000;
const SLACK_MS = 5000;
const SHAPE = { servers: 3, agents: 4, goAgents: 2 };

async function kill({ plane, strike, hold }: Context<Plane>, member: Member): Promise<void> {
  const gateway = plane.gateways.indexOf(member);
  const through = ({ hubId }: Carried) => hubId === member.id;
  const takes = (carried: Carried) =>
    carried.gateway === gateway ||
    carried.agentId === member.id ||
    // Upstream's agents resume nothing.
    (through(carried) && carried.agentId.startsWith('go-'));
  const touches = (carried: Carried) => through(carried) && !takes(carried);
  await strike({ takes, touches, ...(gateway >= 0 && { gateway }) }, () => member.kill());
  await hold(RESTART_AFTER, RESTART_AFTER);
  await member.restart();
  await hold(5000, 1000);
}

function isGo({ id }: Member): boolean {
  return id.startsWith('go-');
}

/** Upstream's agent drains after SIGTERM and does not end by itself: the kubelet kills it when its time is over. */
async function replace({ hold }: Context<Plane>, agent: Member): Promise<void> {
  agent.program.signal('SIGTERM');
  await hold(EACH_MS, EACH_MS);
  await agent.kill();
  await agent.restart();
}

/** In a short run, one of each kind stands for all. */
function victims({ plane: { gateways: servers, agents }, short }: Context<Plane>): readonly Member[] {
  if (!short) return [...servers, ...agents];
  return [servers[0], agents[0], agents.at(-1)].filter((member) => member !== undefined);
}

const killed: Row<Plane> = {
  name: 'servers-kill',
  fault: `${FAULT}: SIGKILL of each in turn`,
  holds: HOLDS,
  bounds: { dialMs: 1000, callersEndMs: 1000, destinationsEndMs: 3000 },
  skip: goMissing,
  topology: (scope) => startPlane(scope, SHAPE),
  async inject(context) {
    for (const member of victims(context)) await kill(context, member);
  },
};

/** Each agent has a session to both servers, so neither server needs the other for its own callers. */
function beside(agents: number): Row<Plane> {
  return {
    name: `servers-apart-${agents}`,
    fault: `2 all-in-one servers beside 2 API-server callers, ${agents} agent${agents === 1 ? '' : 's'}: SIGKILL of one`,
    holds: `${HOLDS}; no tunnel of the other server's callers is cut`,
    bounds: { dialMs: 1000, callersEndMs: 1000, destinationsEndMs: 3000 },
    topology: (scope) => startPlane(scope, { servers: 2, agents }),
    async inject({ plane, strike, hold, measure }) {
      const [victim] = plane.gateways;
      const carried = await plane.carried();
      const astray = carried.filter(({ gateway, hubId }) => hubId !== plane.gateways[gateway]?.id).length;
      measure("tunnels through the other server's hub", astray, '', 0);
      await strike({ takes: ({ gateway }) => gateway === 0, gateway: 0 }, () => victim?.kill());
      await hold(RESTART_AFTER, RESTART_AFTER);
      await victim?.restart();
      await hold(5000, 1000);
    },
  };
}

const rolled: Row<Plane> = {
  name: 'servers-roll',
  fault: `${FAULT}: SIGTERM of each in turn`,
  holds: `${HOLDS}; 0 cut tunnels that could have finished`,
  bounds: {},
  tunnelLife: () => [1000, 6000],
  skip: goMissing,
  topology: (scope) => startPlane(scope, { ...SHAPE, planeFlags: { 'graceful-shutdown-timeout': `${EACH_MS}ms` } }),
  async inject(context) {
    for (const member of victims(context)) {
      if (isGo(member)) await replace(context, member);
      else await member.roll(EACH_MS + SLACK_MS);
      await context.hold(3000, 500);
    }
  },
};

export const allInOneRows: readonly Row<Plane>[] = [killed, rolled, beside(1), beside(2)];

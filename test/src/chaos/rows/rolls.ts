import type { Member, Scope } from '../../harness/index.ts';
import { clock } from '../clock.ts';
import type { Context, Row } from '../row.ts';
import { type SplitPlane, splitPlane } from '../split-plane.ts';

/** How long each process may let its tunnels finish, and how far apart the restarts of a tier are. */
const EACH_MS = 10_000;
/** How long a process must be ready before the next one restarts, like a Deployment's minReadySeconds. */
const READY_FOR_MS = 2000;
/** How long a process may take to end once it has let everything finish. */
const SLACK_MS = 5000;

/** How long a roll of all hubs may take, however long tunnels live. */
const ALL_WITHIN = 30_000;

/** Every tunnel can finish in the time that each process has. */
const TUNNEL_LIFE = [1000, 6000] as const;

function topology(scope: Scope): Promise<SplitPlane> {
  const flags = { 'graceful-shutdown-timeout': `${EACH_MS}ms` };
  return splitPlane(scope, { planeFlags: flags });
}

async function roll({ hold }: Context<SplitPlane>, members: readonly Member[]): Promise<void> {
  for (const member of members) {
    const begin = clock();
    await member.roll(EACH_MS + SLACK_MS);
    await hold(Math.max(READY_FOR_MS, EACH_MS - (clock() - begin)), READY_FOR_MS);
  }
}

function rolling(name: string, tier: 'hubs' | 'gateways' | 'agents'): Row<SplitPlane> {
  return {
    name,
    fault: `rolling restart of all ${tier} (SIGTERM, ${EACH_MS / 1000} s each)`,
    holds: '0 failed dials; 0 cut tunnels that could have finished',
    bounds: {},
    tunnelLife: TUNNEL_LIFE,
    topology,
    inject: (context) => roll(context, context.plane[tier]),
  };
}

/** Tunnels that would live for hours hold up nothing: hubs hand them over. */
const live: Row<SplitPlane> = {
  name: 'roll-hubs-live',
  fault: 'rolling restart of all hubs (SIGTERM, an hour each) under tunnels that live on',
  holds: '0 failed dials; 0 cut tunnels; pauses of at most 500 ms; 3 hubs within 30 s',
  bounds: { pauseMs: 500 },
  topology: (scope) => splitPlane(scope, { planeFlags: { 'graceful-shutdown-timeout': '1h' } }),
  async inject({ plane, strike, hold, measure }) {
    const begin = clock();
    for (const hub of plane.hubs) {
      await strike({ touches: ({ hubId }) => hubId === hub.id }, () => hub.roll(ALL_WITHIN));
      await hold(READY_FOR_MS, READY_FOR_MS);
    }
    measure({ name: `${plane.hubs.length} hubs rolled in`, value: clock() - begin, unit: 'ms', most: ALL_WITHIN });
  },
};

export const rollRows: readonly Row<SplitPlane>[] = [
  rolling('roll-hubs', 'hubs'),
  live,
  rolling('roll-gateways', 'gateways'),
  rolling('roll-agents', 'agents'),
];

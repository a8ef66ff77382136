import type { Member } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { type Plane, startPlane, whole } from '../../rig/plane.ts';
import { type Context, RESTART_AFTER, type Row } from '../row.ts';

/** From one strike to the next, in milliseconds, for a minute. */
const EVERY = 5000;
const STRIKES = 12;
/** A gateway that hangs is avoided after 2.5 s. */
const AVOIDED_WITHIN = 3000;
/** How long dials and tunnels may wait for the other server, in milliseconds. */
const WITHIN = 1000;
const ENDS_WITHIN = 30_000;

interface HoldRow {
  readonly name: string;
  readonly fault: string;
  /** How long dials and tunnels may wait, in milliseconds. */
  readonly within: number;
  readonly strikes: number;
  /** Strikes a server. Resolves when it is there again, or is about to be. */
  strike(context: Context<Plane>, server: Member): Promise<void>;
}

function rowOf({ name, fault, within, strikes, strike }: HoldRow): Row<Plane> {
  return {
    name,
    fault: `2 all-in-one servers under isthmus hold, 2 agents: ${fault}`,
    holds: `0 failed dials; 0 cut tunnels, long or short; dials and pauses of at most ${within / 1000} s`,
    bounds: { dialMs: within, pauseMs: within },
    topology: (scope) =>
      startPlane(scope, { servers: 2, agents: 2, held: true, planeFlags: { 'graceful-shutdown-timeout': '1h' } }),
    async inject(context) {
      const { plane, short, hold } = context;
      const { gateways: servers } = plane;
      for (let turn = 0; turn < (short ? Math.min(3, strikes) : strikes); turn++) {
        const begin = clock();
        // In turn: the first strike brings all tunnels to the other server, and each later one hits them all.
        await strike(context, servers[turn % servers.length] as Member);
        const left = Math.max(0, EVERY - (clock() - begin));
        await hold(left, left);
      }
    },
  };
}

function through({ plane }: Context<Plane>, server: Member) {
  const index = plane.gateways.indexOf(server);
  return { touches: ({ gateway }: { readonly gateway: number }) => gateway === index };
}

const killed = rowOf({
  name: 'hold-kill',
  fault: 'SIGKILL every 5 s for a minute, in turn',
  within: WITHIN,
  strikes: STRIKES,
  async strike(context, server) {
    await context.strike(through(context, server), () => server.kill());
    await context.hold(RESTART_AFTER, RESTART_AFTER);
    await server.restart();
  },
});

const stopped = rowOf({
  name: 'hold-stop',
  fault: 'SIGSTOP for 30 s, then SIGCONT, in turn',
  within: AVOIDED_WITHIN + WITHIN,
  strikes: 2,
  async strike(context, server) {
    await context.strike(through(context, server), () => server.program.signal('SIGSTOP'));
    await context.hold(30_000, 5000);
    server.program.signal('SIGCONT');
    await whole(context.plane);
  },
});

const rolled = rowOf({
  name: 'hold-roll',
  fault: 'SIGTERM and replaced every 5 s for a minute, in turn',
  within: WITHIN,
  strikes: STRIKES,
  async strike(context, server) {
    await context.strike(through(context, server), () => server.roll(ENDS_WITHIN));
  },
});

export const holdRows: readonly Row<Plane>[] = [killed, stopped, rolled];

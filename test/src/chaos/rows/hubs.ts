import type { Context, Row } from '../row.ts';
import { type SplitPlane, splitPlane } from '../split-plane.ts';

/** How long a supervisor takes to start a process again, in milliseconds. */
const RESTART_AFTER = 2000;
const DIALS = { dialMs: 1000 };

async function killHub({ plane, strike }: Context<SplitPlane>, index: number): Promise<void> {
  const hub = plane.hubs[index] as SplitPlane['hubs'][number];
  await strike({ takes: ({ hubId }) => hubId === hub.id }, () => hub.kill());
}

const killed: Row<SplitPlane> = {
  name: 'hub-kill',
  fault: 'hub SIGKILL',
  holds: '0 failed dials; dials within 1 s; only its tunnels end, at once',
  bounds: { ...DIALS, callersEndMs: 1000, destinationsEndMs: 1000 },
  topology: splitPlane,
  async inject(context) {
    await killHub(context, 0);
    await context.hold(20_000, 3000);
    await context.plane.hubs[0]?.restart();
  },
};

const killedInTurn: Row<SplitPlane> = {
  name: 'hub-kill-in-turn',
  fault: 'hub SIGKILL every 5 s for a minute, in turn',
  holds: '0 failed dials; dials within 1 s; only its tunnels end, at once',
  bounds: { ...DIALS, callersEndMs: 1000, destinationsEndMs: 1000 },
  topology: splitPlane,
  async inject(context) {
    const kills = context.short ? 3 : 12;
    for (let kill = 0; kill < kills; kill++) {
      const index = kill % context.plane.hubs.length;
      await killHub(context, index);
      await context.hold(RESTART_AFTER, RESTART_AFTER);
      // It comes up beside the load: what the next kill meets is no rested plane.
      const restarted = context.plane.hubs[index]?.restart();
      await context.hold(5000 - RESTART_AFTER, 5000 - RESTART_AFTER);
      await restarted;
    }
  },
};

export const hubRows: readonly Row<SplitPlane>[] = [killed, killedInTurn];

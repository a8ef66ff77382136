import type { Relay, Scope } from '../../harness/index.ts';
import type { Context, Row } from '../row.ts';
import { type SplitPlane, splitPlane } from '../split-plane.ts';

type Link = 'peer' | 'agent';

const NAMES: Readonly<Record<Link, string>> = { peer: 'hub–gateway', agent: 'hub–agent' };
/** Delay of each chunk in each direction: 200 ms ± 100 ms. */
const [LEAST_DELAY, MOST_DELAY] = [100, 300];
const NEW_DELAY_EVERY = 20;
/** A dial goes there and back once. */
const LATENCY_OF_DIAL = 2 * MOST_DELAY;

function relaysOf({ relays }: SplitPlane, link: Link): Relay[] {
  return relays.map((of) => of[link] as Relay);
}

/** The hub that carries most: tunnels do not come back to a hub whose link was lost. */
async function busiestHub(plane: SplitPlane): Promise<number> {
  const carried = await plane.carried();
  const counts = plane.hubs.map(({ id }) => carried.filter(({ hubId }) => hubId === id).length);
  return counts.indexOf(Math.max(...counts));
}

function reset(link: Link): Row<SplitPlane> {
  return {
    name: `${link}-link-reset`,
    fault: `${NAMES[link]} link reset`,
    holds: '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 500 ms',
    bounds: { dialMs: 1000, pauseMs: 500 },
    topology: (scope: Scope) => splitPlane(scope, { relays: [link] }),
    async inject({ plane, strike, hold, short }) {
      const relays = relaysOf(plane, link);
      for (let times = short ? 1 : 4; times > 0; times--) {
        const busiest = await busiestHub(plane);
        await strike({ touches: ({ hubId }) => hubId === plane.hubs[busiest]?.id }, () => relays[busiest]?.reset());
        await hold(5000, 2000);
      }
    },
  };
}

function slow(link: Link): Row<SplitPlane> {
  return {
    name: `${link}-link-slow`,
    fault: `all ${NAMES[link]} links with 200 ms ± 100 ms of latency`,
    holds: '0 failed dials; dials within 1 s plus the latency',
    bounds: { dialMs: 1000 + LATENCY_OF_DIAL },
    topology: (scope: Scope) => splitPlane(scope, { relays: [link] }),
    inject: (context) => delayed(context, relaysOf(context.plane, link)),
  };
}

async function delayed({ hold }: Context<SplitPlane>, relays: readonly Relay[]): Promise<void> {
  const draw = () => {
    for (const relay of relays) relay.delayMs = LEAST_DELAY + Math.random() * (MOST_DELAY - LEAST_DELAY);
  };
  const drawing = setInterval(draw, NEW_DELAY_EVERY);
  draw();
  await hold(20_000, 4000);
  clearInterval(drawing);
  for (const relay of relays) relay.delayMs = 0;
}

export const linkRows: readonly Row<SplitPlane>[] = [reset('peer'), reset('agent'), slow('peer'), slow('agent')];

import type { Relay, Scope } from '../../harness/index.ts';
import {
  type Direction,
  type Namespace,
  namespace,
  networksMissing,
  type Path,
  pathsMissing,
  pathTo,
  type Wire,
} from '../../rig/network.ts';
import { type Plane, redisFor, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

type Link = 'peer' | 'agent';

const NAMES: Readonly<Record<Link, string>> = { peer: 'hub–gateway', agent: 'hub–agent' };
/** Delay of each chunk in each direction: 200 ms ± 100 ms. */
const [LEAST_DELAY, MOST_DELAY] = [100, 300];
const NEW_DELAY_EVERY = 20;
/** A dial goes there and back once. */
const LATENCY_OF_DIAL = 2 * MOST_DELAY;

function relaysOf({ relays }: Plane, link: Link): Relay[] {
  return relays.map((of) => of[link] as Relay);
}

/** The hub that carries most: tunnels do not come back to a hub whose link was lost. */
async function busiestHub(plane: Plane): Promise<number> {
  const carried = await plane.carried();
  const counts = plane.hubs.map(({ id }) => carried.filter(({ hubId }) => hubId === id).length);
  return counts.indexOf(Math.max(...counts));
}

function reset(link: Link): Row<Plane> {
  return {
    name: `${link}-link-reset`,
    fault: `${NAMES[link]} link reset`,
    holds: '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 500 ms',
    bounds: { dialMs: 1000, pauseMs: 500 },
    topology: (scope: Scope) => startPlane(scope, { relays: [link] }),
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

function slow(link: Link): Row<Plane> {
  return {
    name: `${link}-link-slow`,
    fault: `all ${NAMES[link]} links with 200 ms ± 100 ms of latency`,
    holds: '0 failed dials; dials within 1 s plus the latency',
    bounds: { dialMs: 1000 + LATENCY_OF_DIAL },
    topology: (scope: Scope) => startPlane(scope, { relays: [link] }),
    inject: (context) => delayed(context, relaysOf(context.plane, link)),
  };
}

async function delayed({ hold }: Context<Plane>, relays: readonly Relay[]): Promise<void> {
  const draw = () => {
    for (const relay of relays) relay.delayMs = LEAST_DELAY + Math.random() * (MOST_DELAY - LEAST_DELAY);
  };
  const drawing = setInterval(draw, NEW_DELAY_EVERY);
  draw();
  await hold(20_000, 4000);
  clearInterval(drawing);
  for (const relay of relays) relay.delayMs = 0;
}

export const linkRows: readonly Row<Plane>[] = [reset('peer'), reset('agent'), slow('peer'), slow('agent')];

interface FarHub<T> extends Plane {
  /** The first hub's ways to gateways, and to agents. */
  readonly ways: { readonly [link in Link]: T };
}

/** The first hub has its own network, with a way to gateways, one to agents, and a wire to Redis. */
async function farHub<T extends Pick<Wire, 'inside'>>(
  scope: Scope,
  way: (far: Namespace<Link>, link: Link) => Promise<T>,
): Promise<FarHub<T>> {
  const far = await namespace(scope, ['peer', 'agent', 'registry']);
  const { inside: host, outside } = far.wire('registry');
  // Without a password, Redis refuses other machines unless it is told not to.
  const redis = await redisFor(scope, { args: ['--bind', '127.0.0.1', outside, '--protected-mode', 'no'] });
  const ways = { peer: await way(far, 'peer'), agent: await way(far, 'agent') };
  const place = { command: far.command, host, registryUrl: `redis://${outside}:${redis.port}` };
  const firstHub = { ...place, peer: ways.peer.inside, agent: ways.agent.inside };
  return { ...(await startPlane(scope, { registryUrl: redis.url, firstHub })), ways };
}

function halfOpen(link: Link): Row<FarHub<Wire>> {
  return {
    name: `${link}-link-half-open`,
    fault: `${NAMES[link]} link half open (packets dropped)`,
    holds: '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 3.5 s',
    bounds: { dialMs: 1000, pauseMs: 3500 },
    skip: networksMissing,
    topology: (scope: Scope) => farHub(scope, async (far, link) => far.wire(link)),
    async inject({ plane, strike, hold }: Context<FarHub<Wire>>) {
      const [hub] = plane.hubs;
      await strike({ touches: ({ hubId }) => hubId === hub?.id }, () => plane.ways[link].cut());
      await hold(20_000, 5000);
      await plane.ways[link].mend();
    },
  };
}

export const halfOpenRows: readonly Row<FarHub<Wire>>[] = [halfOpen('peer'), halfOpen('agent')];

/** Longer packets vanish. TCP does not find out: it sends them again and again, and all that follows waits behind them. */
const SHRUNK = { mtu: 1300 };

const pathShrinks: Row<FarHub<Path>> = {
  name: 'hub-path-shrinks',
  fault: 'packets above 1,300 bytes vanish on all links of one hub for 12 s',
  holds: '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 3.5 s',
  bounds: { dialMs: 1000, pauseMs: 3500 },
  skip: pathsMissing,
  topology: (scope) => farHub(scope, (far, link) => pathTo(scope, far, link === 'peer' ? 0 : 1)),
  // Bytes that fill packets, as those of an API server's watch or of `kubectl logs`. A caller waits for them for six seconds.
  dialsPerSecond: 40,
  dialBytes: 60 * 1024,
  async inject({ plane, strike, hold }) {
    const [hub] = plane.hubs;
    const set = (way: Direction) =>
      Promise.all(Object.values(plane.ways).map((path) => path.set({ up: way, down: way })));
    await strike({ touches: ({ hubId }) => hubId === hub?.id }, () => set(SHRUNK));
    await hold(12_000, 12_000);
    await set({});
    await hold(5000, 2000);
  },
};

export const pathRows: readonly Row<FarHub<Path>>[] = [pathShrinks];

import { type Member, until } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import { type Context, RESTART_AFTER, type Row } from '../row.ts';

/** A hub that hangs is avoided by then, and its links are ended, in milliseconds. */
const AVOIDED_WITHIN = 3000;
const ENDED_WITHIN = 6000;
/** Of tunnels through a hub that was killed, in milliseconds. */
const PAUSE = 500;
const BOUNDS = { dialMs: 1000, pauseMs: PAUSE };

async function killHub({ strike }: Context<Plane>, hub: Member): Promise<void> {
  await strike({ touches: ({ hubId }) => hubId === hub.id }, () => hub.kill());
}

const killed: Row<Plane> = {
  name: 'hub-kill',
  fault: 'hub SIGKILL',
  holds: '0 failed dials; dials within 1 s; 0 cut tunnels, long or short; pauses of at most 500 ms',
  bounds: BOUNDS,
  topology: (scope) => startPlane(scope),
  async inject(context) {
    const [hub] = context.plane.hubs as [Member];
    await killHub(context, hub);
    await context.hold(20_000, 3000);
    await hub.restart();
  },
};

const killedInTurn: Row<Plane> = {
  name: 'hub-kill-in-turn',
  fault: 'hub SIGKILL every 5 s for a minute, in turn',
  holds: '0 failed dials; dials within 1 s; 0 cut tunnels, long or short; pauses of at most 500 ms',
  bounds: BOUNDS,
  topology: (scope) => startPlane(scope),
  async inject(context) {
    const { hubs } = context.plane;
    const kills = context.short ? 3 : 12;
    for (let kill = 0; kill < kills; kill++) {
      const hub = hubs[kill % hubs.length] as Member;
      await killHub(context, hub);
      await context.hold(RESTART_AFTER, RESTART_AFTER);
      // The hub restarts while the load runs, so that the next kill does not find the plane at rest.
      const restarted = hub.restart();
      await context.hold(5000 - RESTART_AFTER, 5000 - RESTART_AFTER);
      await restarted;
    }
  },
};

const stopped: Row<Plane> = {
  name: 'hub-stop',
  fault: 'hub SIGSTOP for 30 s, then SIGCONT',
  holds:
    '0 failed dials; dials within 1 s; 0 cut tunnels; pauses of at most 3.5 s; its links are ended within 6 s; the returning hub is fenced',
  bounds: { ...BOUNDS, pauseMs: AVOIDED_WITHIN + PAUSE },
  topology: (scope) => startPlane(scope),
  async inject(context) {
    const { plane, strike, measure, hold } = context;
    const [hub] = plane.hubs as [Member];
    const before = new Set((await hub.sessions()).map(({ sessionId }) => sessionId));
    const { at } = await strike({ touches: ({ hubId }) => hubId === hub.id }, () => hub.program.signal('SIGSTOP'));
    const detected = await allLose(plane, hub, before.size);
    measure('ended after', detected - at, 'ms', ENDED_WITHIN);
    await hold(30_000 - (clock() - at), 4000);
    hub.program.signal('SIGCONT');
    await fenced(context, hub, before);
  },
};

/** Waits until the gateways have no link to a hub and the agents have no session with it. @returns when that was so */
async function allLose({ gateways, hubs, agents }: Plane, hub: Member, sessions: number): Promise<number> {
  const open = 'konnectivity_network_proxy_agent_open_server_connections';
  const others = hubs.filter((other) => other !== hub);
  const lost = async () => {
    const [links, held, uplinks] = await Promise.all([
      Promise.all(gateways.map((gateway) => gateway.value('isthmus_hub_links'))),
      Promise.all(others.map((other) => other.sessions())),
      Promise.all(agents.map((agent) => agent.value(open))),
    ]);
    // An agent that has lost a session may already hold another one, at a hub that lives.
    const dead = uplinks.reduce((sum, count) => sum + count, 0) - held.flat().length;
    return links.every((count) => count === others.length) && dead <= 0 && clock();
  };
  return await until(lost, { what: `the loss of ${hub.id} with its ${sessions} sessions to be noticed` });
}

/** Checks that nothing the hub held before is dialled again: its agents come back in new sessions. */
async function fenced({ plane }: Context<Plane>, hub: Member, before: ReadonlySet<string>): Promise<void> {
  let breach: string | undefined;
  const back = async () => {
    for (const gateway of plane.gateways) {
      const used = (await gateway.tunnels()).find(({ sessionId }) => before.has(sessionId));
      if (used) breach = `${gateway.id} dialled ${used.destination} through ${used.sessionId}, which was lost`;
    }
    const held = (await hub.sessions()).map(({ sessionId }) => sessionId);
    return !breach && held.length > 0 && held.every((sessionId) => !before.has(sessionId));
  };
  await until(back, { what: `new sessions at ${hub.id}`, hopeless: () => breach });
}

export const hubRows: readonly Row<Plane>[] = [killed, killedInTurn, stopped];

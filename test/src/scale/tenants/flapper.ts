// A process of one tenant's agents that come and go all the time: each connects, and leaves as soon as it has a session.
import type { Agent } from '@isthmus/agent';
import { planeEvents } from '@isthmus/tunnel';
import type { FleetSettings } from '../messages.ts';
import { simulatedAgent } from '../simulated-agent.ts';

export interface FlapOrder {
  readonly settings: FleetSettings;
  /** How often each agent comes and goes. */
  readonly rounds: number;
  /** In milliseconds, for all of it. */
  readonly deadline: number;
}

/** What happened so far. */
export interface Flapped {
  sessions: number;
  /** Texts of attempts to connect that failed. */
  readonly failures: string[];
}

/**
 * How many of the agents connect at once. Each real one has its own processor for its handshake. These share one, so that with all of them at
 * once on a busy machine all would time out, and try again together.
 */
const CONNECTING = 25;

async function flap({ settings, rounds, deadline }: FlapOrder): Promise<Flapped> {
  const told: Flapped = { sessions: 0, failures: [] };
  const end = performance.now() + deadline;
  const visits = Array.from({ length: rounds }, () => (settings.members ?? []).map((_, number) => number)).flat();
  const lane = async () => {
    for (let number = visits.shift(); number !== undefined && performance.now() < end; number = visits.shift())
      await comeAndGo(number, settings, told, end - performance.now());
  };
  await Promise.all(Array.from({ length: CONNECTING }, lane));
  return told;
}

/** Resolves when the agent has had a session and left, or when time is up. */
async function comeAndGo(number: number, settings: FleetSettings, told: Flapped, ms: number): Promise<void> {
  const events = planeEvents();
  events.on('server:failure', (_address, _at, { message }) => void told.failures.push(message));
  let running: Agent | undefined;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    events.once('server:open', () => {
      told.sessions++;
      clearTimeout(timer);
      resolve();
    });
    running = simulatedAgent(number, settings, events);
  });
  await running?.close();
}

process.on('message', async (order: FlapOrder) => {
  const told = await flap(order);
  process.send?.(told, () => process.exit(0));
});
process.on('disconnect', () => process.exit(1));

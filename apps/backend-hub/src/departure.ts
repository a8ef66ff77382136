import { setTimeout as sleep } from 'node:timers/promises';
import type { Directory } from '@isthmus/directory';
import { agentKey, isAlone, sessionsAtOtherHubs } from './other-hubs.ts';
import type { SessionTable } from './sessions.ts';

/**
 * How long agents may take to get a session with another hub before this one accepts no more dials for them, in milliseconds. They
 * connect as soon as they hear of it. Thousands of them take a few seconds.
 */
const MOVE_TIMEOUT = 5000;

/**
 * How often the directory is checked, in milliseconds. A session is given up when the agent's other session was seen twice, so that
 * gateways, whose copies may be slightly older, know it too.
 */
const LOOK_EVERY = 150;

/**
 * Gives up a hub's sessions one by one: each when its agent has another one elsewhere, and the rest when the time is over or there is
 * nowhere to go. Until then it serves dials, because a gateway may know no other way to the agent.
 */
export async function giveUpSessions(sessions: SessionTable, directory: Directory, hubId: string): Promise<void> {
  const deadline = performance.now() + MOVE_TIMEOUT;
  let seen: ReadonlyMap<string, number> = new Map();
  while (sessions.held > 0 && performance.now() < deadline && !isAlone(directory, hubId)) {
    const now = sessionsAtOtherHubs(directory, hubId);
    sessions.giveUp((session) => now.has(agentKey(session)) && seen.has(agentKey(session)));
    seen = now;
    await sleep(LOOK_EVERY);
  }
  sessions.giveUp(() => true);
}

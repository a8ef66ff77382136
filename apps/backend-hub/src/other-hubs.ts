import type { Directory } from '@isthmus/directory';

/** Identifies an agent within a plane. Ids may contain any character. */
export function agentKey({ tenant, agentId }: { readonly tenant: string; readonly agentId: string }): string {
  return JSON.stringify([tenant, agentId]);
}

/**
 * Returns how many sessions each agent has with other hubs that stay, by `agentKey`, according to the registry's copy. Sessions of a
 * killed hub count until its record has expired, up to 13 s.
 */
export function sessionsAtOtherHubs(directory: Directory, own: string): ReadonlyMap<string, number> {
  const sessions = new Map<string, number>();
  for (const session of directory.sessions()) {
    const hub = directory.hub(session.hubId);
    if (session.hubId === own || session.draining || !hub || hub.draining) continue;
    const key = agentKey(session);
    sessions.set(key, (sessions.get(key) ?? 0) + 1);
  }
  return sessions;
}

/** Whether agents have another hub to go to. */
export function isAlone(directory: Directory, own: string): boolean {
  for (const { hubId, draining } of directory.hubs()) if (hubId !== own && !draining) return false;
  return true;
}

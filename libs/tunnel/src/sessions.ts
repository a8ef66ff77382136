import { isIP } from '@isthmus/runtime';

/** What an agent says it can reach (upstream's agent identifiers). */
export interface AgentIdentifiers {
  readonly ipv4: readonly string[];
  readonly ipv6: readonly string[];
  readonly host: readonly string[];
  readonly cidr: readonly string[];
  readonly defaultRoute: boolean;
}

export function identifierCount({ ipv4, ipv6, host, cidr, defaultRoute }: AgentIdentifiers): number {
  return [ipv4, ipv6, host, cidr].reduce((sum, { length }) => sum + length, defaultRoute ? 1 : 0);
}

/** Whether Go's net.ParseCIDR takes a text: no zones, no octal numbers, no parts left out. */
export function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([\da-fA-F.:]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(bits) <= (family === 4 ? 32 : 128);
}

export interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

/** One agent of one tenant. Ids may contain any character, so the key starts with the tenant's length. */
export function agentKey({ tenant, agentId }: AgentName): string {
  return `${tenant.length} ${tenant} ${agentId}`;
}

/** A session as its hub has recorded it. */
interface RecordedSession extends AgentName {
  readonly sessionId: string;
  readonly hubId: string;
  /** The agent's process: tunnels through it can be resumed through its other sessions. Unset if it does not say. */
  readonly instance?: string;
}

/** A session to an agent that a tunnel may run through. */
export interface AgentSession {
  readonly record: RecordedSession;
  readonly state: { readonly draining: boolean };
}

/** What the tunnels of a gateway need to know of sessions. `Directory` of libs/directory is one. */
export interface AgentSessions {
  /** The hub in this process, if there is one. */
  readonly ownHub: string | undefined;
  /** Reports the existing sessions, then every change. */
  watch(watcher: Record<'came' | 'went' | 'changed', (session: RecordedSession) => void>): void;
  session(sessionId: string): AgentSession | undefined;
  /** Yields the agent's sessions: those of this process, and perhaps of others. */
  ofAgent(agent: ProcessName): Iterable<AgentSession>;
  /** Removes a session that has ended, until its hub announces it again. */
  forget(sessionId: string): void;
  /** Counts a tunnel through a session. @returns undoes that */
  enter(sessionId: string): () => void;
}

/** Names one process of an agent. */
export interface ProcessName extends AgentName {
  readonly instance: string;
}

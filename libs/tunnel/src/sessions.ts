import { type Clock, isIP, RandomSet } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import { SessionLost } from './errors.ts';

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
  /** Yields the agent's sessions: those of this process, and perhaps of others. */
  ofAgent(agent: ProcessName): Iterable<AgentSession>;
  /** Removes a session that has ended, until its hub announces it again. */
  forget(sessionId: string): void;
  /** Counts a tunnel through a session. @returns undoes that */
  enter(sessionId: string): () => void;
}

const NEVER = Number.NEGATIVE_INFINITY;

/** Names one process of an agent. */
export interface ProcessName extends AgentName {
  readonly instance: string;
}

/** A tunnel to a process. */
interface OfProcess {
  /** Called when sessions of the agent have opened, closed or changed. @param sessions all sessions of the process */
  checkSession(sessions: readonly AgentSession[]): void;
}

/**
 * One process of an agent, seen from a gateway that has tunnels to it. It decides whether a loss of sessions means that the process is dead:
 * a process that dies closes all its connections at the same moment. A process that is alive loses one connection, or loses several that
 * it did not close itself.
 */
export class AgentProcess<Tunnel extends OfProcess = OfProcess> {
  readonly name: ProcessName;
  readonly tunnels = new RandomSet<Tunnel>();
  readonly #directory: Pick<AgentSessions, 'ofAgent' | 'forget'>;
  readonly #clock: Pick<Clock, 'now'>;
  #count = 0;
  /** Until when it had more than one session. */
  #severalUntil = NEVER;
  /** When it lost its last session. Unset while it has one, and before its first. */
  #goneAt: number | undefined;
  /** When it last closed a connection. */
  #hungUpAt = NEVER;
  /** When another process of the agent last opened a session. */
  #otherAt = NEVER;

  constructor(name: ProcessName, directory: Pick<AgentSessions, 'ofAgent' | 'forget'>, clock: Pick<Clock, 'now'>) {
    this.name = name;
    this.#directory = directory;
    this.#clock = clock;
    this.sessions();
  }

  /** Finds its sessions, and remembers when they were lost. */
  sessions(): readonly AgentSession[] {
    const { name } = this;
    const sessions: AgentSession[] = [];
    for (const session of this.#directory.ofAgent(name))
      if (session.record.instance === name.instance) sessions.push(session);
    this.#saw(sessions.length);
    return sessions;
  }

  /** Call when the agent has a new session. */
  came({ instance }: AgentSession['record']): void {
    if (instance !== undefined && instance !== this.name.instance) this.#otherAt = this.#clock.now();
  }

  /** Call when sessions of the agent have opened, closed or changed. */
  checkTunnels(): void {
    const sessions = this.sessions();
    for (const tunnel of [...this.tunnels]) tunnel.checkSession(sessions);
  }

  /** Call when the process has closed the connection of a session. */
  hungUp(sessionId: string): void {
    this.#hungUpAt = this.#clock.now();
    this.lost(sessionId);
  }

  /** Call when a session is lost. The registry will report it later. */
  lost(sessionId: string): void {
    this.#directory.forget(sessionId);
  }

  /** Returns why a tunnel should not wait for this process after a loss, or undefined while it may come back. */
  endAfter(loss: Error): Error | undefined {
    const goneAt = this.sessions().length > 0 ? undefined : this.#goneAt;
    if (goneAt === undefined) return undefined;
    const since = goneAt - TUNNEL.togetherMs;
    const restarted = this.#otherAt >= since;
    const together = this.#severalUntil >= since && this.#hungUpAt >= since;
    if (!restarted && !together) return undefined;
    const what = restarted ? 'has restarted' : 'has closed all its connections';
    return new SessionLost(`agent ${this.name.agentId} ${what}`, { by: 'agent', cause: loss });
  }

  #saw(count: number): void {
    const before = this.#count;
    this.#count = count;
    if (count > 0) this.#goneAt = undefined;
    const now = this.#clock.now();
    if (before > 1 && count < 2) this.#severalUntil = now;
    if (before > 0 && count === 0) this.#goneAt = now;
  }
}

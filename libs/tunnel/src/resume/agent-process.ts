import { type Clock, RandomSet } from '@isthmus/runtime';
import { SessionLost } from '../dial/errors.ts';
import type { AgentName, AgentSession, AgentSessions } from '../sessions.ts';
import { TOGETHER_MS } from './options.ts';

const NEVER = Number.NEGATIVE_INFINITY;

/** Names one process of an agent. */
export interface ProcessName extends AgentName {
  readonly instance: string;
}

/** A tunnel to a process. */
export interface OfProcess {
  /** Called when sessions of the agent have opened, closed or changed. @param sessions all sessions of the process */
  checkSession(sessions: readonly AgentSession[]): void;
}

interface AgentProcessOptions {
  readonly name: ProcessName;
  readonly directory: Pick<AgentSessions, 'ofAgent' | 'forget'>;
  readonly clock: Pick<Clock, 'now'>;
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

  constructor({ name, directory, clock }: AgentProcessOptions) {
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
    const since = goneAt - TOGETHER_MS;
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

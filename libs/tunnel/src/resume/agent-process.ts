import { type Clock, RandomSet } from '@isthmus/runtime';
import { SessionLost } from '../dial/errors.ts';
import type { Directory } from '../replica/directory.ts';
import type { AgentName, SessionRecord } from '../replica/records.ts';
import type { Place } from '../route/placement.ts';
import { TOGETHER_MS } from './options.ts';

const NEVER = Number.NEGATIVE_INFINITY;

/** Names one process of an agent. */
export interface ProcessName extends AgentName {
  readonly instance: string;
}

/** A tunnel to it. */
export interface OfProcess {
  /** Sessions of the agent have come, gone or changed. @param sessions all that the process has */
  look(sessions: readonly Place[]): void;
}

interface AgentProcessOptions {
  readonly name: ProcessName;
  readonly directory: Directory;
  readonly clock: Pick<Clock, 'now'>;
}

/**
 * A process of an agent, as a gateway that has tunnels to it sees it. Tells its death from lost links: a process that dies closes all its
 * connections in the same moment. One that lives loses one of them, or does not close them itself.
 */
export class AgentProcess<Tunnel extends OfProcess = OfProcess> {
  readonly name: ProcessName;
  readonly tunnels = new RandomSet<Tunnel>();
  readonly #directory: Directory;
  readonly #clock: Pick<Clock, 'now'>;
  #count = 0;
  /** When the last but one of them went, and when the last one did: unset while it has one, and until it had. */
  #severalUntil = NEVER;
  #goneAt: number | undefined;
  /** When it last closed one. */
  #hungUpAt = NEVER;
  /** When another process of the agent last had a new one. */
  #otherAt = NEVER;

  constructor({ name, directory, clock }: AgentProcessOptions) {
    this.name = name;
    this.#directory = directory;
    this.#clock = clock;
    this.sessions();
  }

  /** Finds the sessions that it has, and remembers when they went. */
  sessions(): readonly Place[] {
    const { name } = this;
    const sessions: Place[] = [];
    for (const place of this.#directory.ofAgent(name))
      if (place.route.record.instance === name.instance) sessions.push(place);
    this.#saw(sessions.length);
    return sessions;
  }

  /** Call when the agent has a new session. */
  came({ instance }: SessionRecord): void {
    if (instance !== undefined && instance !== this.name.instance) this.#otherAt = this.#clock.now();
  }

  /** Call when sessions of the agent have come, gone or changed. */
  look(): void {
    const sessions = this.sessions();
    for (const tunnel of [...this.tunnels]) tunnel.look(sessions);
  }

  /** It has closed a session. */
  hungUp(sessionId: string): void {
    this.#hungUpAt = this.#clock.now();
    this.lost(sessionId);
  }

  /** A session is gone, which the registry will say later. */
  lost(sessionId: string): void {
    this.#directory.forget(sessionId);
  }

  /** Why a tunnel should not wait for it after a loss; undefined while it may come back. */
  endAfter(loss: Error): Error | undefined {
    const goneAt = this.sessions().length > 0 ? undefined : this.#goneAt;
    if (goneAt === undefined) return undefined;
    const since = goneAt - TOGETHER_MS;
    const restarted = this.#otherAt >= since;
    const together = this.#severalUntil >= since && this.#hungUpAt >= since;
    if (!restarted && !together) return undefined;
    const what = restarted ? 'has restarted' : 'has closed all its connections';
    return new SessionLost(`agent ${this.name.agentId} ${what}`, { cause: loss });
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

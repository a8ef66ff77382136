import { type Clock, getOrPut, RandomSet } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import { HungUp, SessionLost } from '../errors.ts';

export interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

/** One agent of one tenant. Ids may contain any character, so the key starts with the tenant's length. */
export function agentKey({ tenant, agentId }: AgentName): string {
  return `${tenant.length} ${tenant} ${agentId}`;
}

/** Names one process of an agent. */
export interface ProcessName extends AgentName {
  readonly instance: string;
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

/*
 * Whether the process at a tunnel's far end is dead, or only a connection to it is lost. A process that dies closes all its connections at
 * the same moment. A process that is alive loses one connection, or loses several that it did not close itself. If it loses all soon after
 * each other, it is back at once.
 */

const NEVER = Number.NEGATIVE_INFINITY;

/**
 * How long after the end of its last connection a process counts as dead, if it is not back. All times are in milliseconds of one clock.
 * @param goneAt when its last connection ended
 * @param severalUntil until when it had more than one
 * @param hungUpAt when it last closed one itself: no word, and no reset on the way
 * @returns undefined if it seems to live
 */
function deadAfter(goneAt: number, severalUntil: number, hungUpAt: number): number | undefined {
  const earlier = Math.min(severalUntil, hungUpAt);
  if (!areTogether(goneAt, earlier)) return undefined;
  return goneAt - earlier <= TUNNEL.sameMomentMs ? 0 : TUNNEL.backAtOnceMs;
}

/** Whether something happened in the moment of a loss, or after it. */
function areTogether(lossAt: number, at: number): boolean {
  return at >= lossAt - TUNNEL.togetherMs;
}

/**
 * How long a half waits for a new carrier, in milliseconds. If the other half's process seems to have closed its connection, either the process
 * is dead, or something on the way closed the connection, and a process that is alive is back soon.
 */
export function waitAfter(loss: Error, timeoutMs: number): number {
  return loss instanceof HungUp ? Math.min(TUNNEL.hungUpBackMs, timeoutMs) : timeoutMs;
}

/** A tunnel to a process. */
interface OfProcess {
  /** Called when sessions of the agent have opened, closed or changed. @param sessions all sessions of the process */
  checkSession(sessions: readonly AgentSession[]): void;
}

/** One process of an agent, seen from a gateway that has tunnels to it. Its connections are the sessions. */
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
    const before = this.#count;
    const count = sessions.length;
    this.#count = count;
    if (count > 0) this.#goneAt = undefined;
    const now = this.#clock.now();
    if (before > 1 && count < 2) this.#severalUntil = now;
    if (before > 0 && count === 0) this.#goneAt = now;
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
    const restarted = areTogether(goneAt, this.#otherAt);
    const ms = restarted ? 0 : deadAfter(goneAt, this.#severalUntil, this.#hungUpAt);
    if (ms === undefined || this.#clock.now() < goneAt + ms) return undefined;
    const what = restarted ? 'has restarted' : 'has closed all its connections';
    return new SessionLost(`agent ${this.name.agentId} ${what}`, { by: 'agent', cause: loss });
  }
}

/** How a gateway's connection to a hub has ended. */
export interface GatewayLoss {
  /** The gateway's instance. */
  readonly gateway: string;
  /** Whether something on the way reset it. */
  readonly reset: boolean;
}

interface Report {
  readonly at: number;
  readonly reset: boolean;
}

/** The processes of gateways, seen from an agent. Their connections are those that the agent's hubs report as lost. */
export class GatewayProcesses {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #dead: (gateway: string, afterMs: number) => void;
  readonly #links = new Set<object>();
  /** By gateway: what hubs have reported, by the link to each. */
  readonly #reports = new Map<string, Map<object, Report>>();

  /** @param dead called for each gateway that counts as dead if it is not back so many milliseconds later */
  constructor(clock: Pick<Clock, 'now'>, dead: (gateway: string, afterMs: number) => void) {
    this.#clock = clock;
    this.#dead = dead;
  }

  /** Call when a link to a hub opens. */
  came(link: object): void {
    this.#links.add(link);
  }

  went(link: object): void {
    this.#links.delete(link);
  }

  /** Call when the hub of a link has lost its connection to a gateway. */
  report({ gateway, reset }: GatewayLoss, link: object): void {
    const now = this.#clock.now();
    this.#forget(now);
    const reports = getOrPut(this.#reports, gateway, () => new Map<object, Report>());
    reports.set(link, { at: now, reset });
    if ([...this.#links].some((each) => !reports.has(each))) return;
    const others = [...reports].filter(([other]) => other !== link).map(([, { at }]) => at);
    const hungUp = [...reports.values()].filter((each) => !each.reset).map(({ at }) => at);
    const ms = deadAfter(now, Math.max(NEVER, ...others), Math.max(NEVER, ...hungUp));
    if (ms === undefined) return;
    this.#reports.delete(gateway);
    this.#dead(gateway, ms);
  }

  #forget(now: number): void {
    for (const [gateway, reports] of this.#reports) {
      for (const [link, { at }] of reports) if (!areTogether(now, at)) reports.delete(link);
      if (reports.size === 0) this.#reports.delete(gateway);
    }
  }
}

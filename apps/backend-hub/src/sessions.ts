import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Change, Directory, HubRegistration, SessionRecord } from '@isthmus/directory';
import type { Hub } from '@isthmus/plane';
import { countIn, deleteFrom, getOrPut, guarding } from '@isthmus/runtime';
import type { NextHopConnection } from '@isthmus/transport';
import {
  type AgentIdentifiers,
  type AgentName,
  type Ask,
  type Attach,
  agentKey,
  type Dial,
  DialError,
  type DialRequest,
  type PlaneEvents,
  type Principal,
  type SessionInfo,
} from '@isthmus/tunnel';
import { HUB } from './defaults.ts';

/**
 * Returns how many sessions each agent has with other hubs that stay, by `agentKey`, according to the registry's copy. Sessions of a
 * killed hub count until its record has expired, up to 14 s.
 */
export function sessionsAtOtherHubs(directory: Directory, own: string): ReadonlyMap<string, number> {
  const sessions = new Map<string, number>();
  for (const session of directory.sessions()) {
    const hub = directory.hub(session.hubId);
    if (session.hubId === own || session.draining || !hub || hub.draining) continue;
    countIn(sessions, agentKey(session), 1);
  }
  return sessions;
}

/** Whether agents have another hub to go to. */
function isAlone(directory: Directory, own: string): boolean {
  for (const { hubId, draining } of directory.hubs()) if (hubId !== own && !draining) return false;
  return true;
}

/** Who an agent is, before it has a session. */
export interface AgentIdentity {
  readonly tenant: string;
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly protocol: SessionInfo['protocol'];
  readonly remote: string;
  readonly instance?: string;
  readonly certificate?: NonNullable<SessionInfo['certificate']>;
  /** Unset where no tenants are configured. */
  readonly principal?: Principal;
}

interface SessionTableOptions {
  readonly hubId: string;
  readonly incarnation: number;
  readonly events: PlaneEvents;
  readonly registration: Pick<HubRegistration, 'announce' | 'withdraw'>;
  /** Called for each change, for a gateway in the same process. */
  readonly changed: (change: Change) => void;
}

/** Returns why a dial is not passed on, or undefined if it is. */
export type Refuse = (request: DialRequest) => DialError | undefined;

interface Entry {
  readonly info: SessionInfo;
  readonly connection: NextHopConnection;
  readonly refuse: Refuse | undefined;
  /** When the agent asked for dials to use its other sessions, in milliseconds since the epoch. */
  drainingSince: number | undefined;
  /** It is silent. Gateways see it as draining: dials and tunnels go elsewhere while they can. */
  suspect: boolean;
  /** It accepts no new dials and has left the registry; its tunnels still run. */
  givenUp: boolean;
}

export function newSessionId(): string {
  return randomBytes(8).toString('hex');
}

/** A hub's sessions: dials through them, and announces them to the registry. */
export class SessionTable {
  readonly #options: SessionTableOptions;
  readonly #entries = new Map<string, Entry>();
  /** A Go agent's streams on this hub, oldest first, by tenant and agent id: only the oldest takes dials, as upstream has it. */
  readonly #streams = new Map<string, Set<Entry>>();
  readonly #tenants = new Map<string, number>();
  /** By tenant: its agents with sessions, and how many each has. */
  readonly #agents = new Map<string, Map<string, number>>();
  #version = 0;
  #leaving = false;
  #ended: Error | undefined;

  constructor(options: SessionTableOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Sessions that take dials. */
  get taking(): number {
    let taking = 0;
    for (const { givenUp } of this.#entries.values()) if (!givenUp) taking++;
    return taking;
  }

  /** Tenants with sessions, and how many. */
  get tenants(): ReadonlyMap<string, number> {
    return this.#tenants;
  }

  /** Sessions of one agent. */
  ofAgent({ tenant, agentId }: AgentName): number {
    return this.#agents.get(tenant)?.get(agentId) ?? 0;
  }

  /** Agents of one tenant that have sessions. */
  agentsOf(tenant: string): number {
    return this.#agents.get(tenant)?.size ?? 0;
  }

  *list(): ReturnType<Hub['sessions']['list']> {
    for (const { info, drainingSince, givenUp, suspect: suspected } of this.#entries.values()) {
      const draining = drainingSince !== undefined || givenUp || this.#leaving;
      const since = drainingSince === undefined ? {} : { drainingSince };
      yield { ...info, ...credentialOf(info), draining, suspected, ...since };
    }
  }

  /** Dials through the session that the gateway chose, whose connection has its names. */
  readonly dial: Dial = (request) => {
    const entry = this.#chosen(request);
    if (!entry) return Promise.reject(this.#absent(request));
    const refusal = entry.refuse?.(request);
    if (refusal) return Promise.reject(refusal);
    return entry.connection.dial(request);
  };

  /** Attaches through the session that the gateway chose. */
  readonly attach: Attach = (request) => {
    const entry = this.#chosen(request);
    if (!entry) return Promise.reject(this.#absent(request));
    return entry.connection.attach(request).then(({ end, carrier, answer }) => {
      const { agentId, sessionId, hubId } = entry.info;
      return { end, carrier, answer, agentId, sessionId, hubId };
    });
  };

  /** A session of another tenant counts as absent, so that the gateway does not learn that it exists. */
  #chosen({ session = '', tenant }: Pick<DialRequest, 'session' | 'tenant'>): Entry | undefined {
    const entry = this.#entries.get(session);
    return entry?.info.tenant === tenant && !entry.givenUp ? entry : undefined;
  }

  #absent({ session }: Pick<DialRequest, 'session'>): DialError {
    const text = `no session ${session} on hub ${this.#options.hubId}`;
    return new DialError('destination_unavailable', text, { retryable: true });
  }

  add(sessionId: string, identity: AgentIdentity, connection: NextHopConnection, refuse?: Refuse): void {
    const { hubId, events } = this.#options;
    const info: SessionInfo = { ...identity, sessionId, hubId, since: Date.now() };
    const entry: Entry = { info, connection, refuse, drainingSince: undefined, suspect: false, givenUp: false };
    this.#entries.set(sessionId, entry);
    this.#count(info, 1);
    events.emit('session:open', info);
    if (info.protocol === 'packets') getOrPut(this.#streams, agentKey(info), () => new Set()).add(entry);
    if (this.#isActive(entry)) this.#announce(entry);
    const guarded = guarding((error) => events.emit('fault', 'sessions', `agent ${info.agentId}`, error));
    void connection.closed.then(guarded((reason: Error) => this.#remove(entry, reason)));
    // It was admitted before the hub began to leave or stopped, and opens only now.
    if (this.#ended) connection.destroy(this.#ended);
    else if (this.#leaving) this.#giveUp(entry);
  }

  /** Marks a session as draining: dials avoid it if the agent has another one. */
  drain(sessionId: string): void {
    const entry = this.#entries.get(sessionId);
    if (!entry || entry.drainingSince !== undefined) return;
    entry.drainingSince = Date.now();
    this.#options.events.emit('session:drain', entry.info);
    if (this.#isActive(entry) && !entry.givenUp) this.#announce(entry);
  }

  /** Marks a session as silent, or as heard again. */
  suspect(sessionId: string, is: boolean): void {
    const entry = this.#entries.get(sessionId);
    if (!entry) return;
    entry.suspect = is;
    this.#options.events.emit('session:suspect', entry.info, is);
    if (this.#isActive(entry) && !entry.givenUp) this.#announce(entry);
  }

  /** Returns the way to ask an agent: through the newest of its sessions that takes questions. */
  asker(agent: AgentName): Ask | undefined {
    let found: NextHopConnection | undefined;
    for (const { info, connection } of this.#entries.values())
      if (info.agentId === agent.agentId && info.tenant === agent.tenant && connection.ask) found = connection;
    return found && ((question, signal) => (found.ask as Ask)(question, signal));
  }

  /** Tells every agent to get another session. */
  leave(): void {
    this.#leaving = true;
    for (const { connection } of this.#entries.values()) connection.leave();
  }

  /** Stops dialling through these sessions. Each ends when its tunnels have ended. */
  giveUp(which: (session: SessionInfo) => boolean): void {
    for (const entry of [...this.#entries.values()]) if (!entry.givenUp && which(entry.info)) this.#giveUp(entry);
  }

  /** Resolves when no session is left. */
  async idle(): Promise<void> {
    while (this.#entries.size > 0)
      await Promise.all([...this.#entries.values()].map(({ connection }) => connection.closed));
  }

  /** Ends these sessions and their tunnels at once. @returns the ended sessions */
  kick(which: (session: SessionInfo) => boolean, reason: Error): SessionInfo[] {
    const entries = [...this.#entries.values()].filter(({ info }) => which(info));
    for (const { connection } of entries) connection.destroy(reason);
    return entries.map(({ info }) => info);
  }

  /** Ends every session at once, also those that an agent still opens. */
  destroy(reason: Error): void {
    this.#ended = reason;
    for (const { connection } of this.#entries.values()) connection.destroy(reason);
  }

  #count({ tenant, agentId }: SessionInfo, by: 1 | -1): void {
    countIn(this.#tenants, tenant, by);
    const agents = getOrPut(this.#agents, tenant, () => new Map<string, number>());
    countIn(agents, agentId, by);
    if (agents.size === 0) this.#agents.delete(tenant);
  }

  #giveUp(entry: Entry): void {
    const wasActive = this.#isActive(entry);
    entry.givenUp = true;
    if (wasActive) this.#withdraw(entry.info.sessionId);
    entry.connection.close();
  }

  #isActive(entry: Entry): boolean {
    return entry.info.protocol === 'link' || this.#oldest(entry.info) === entry;
  }

  #oldest(agent: AgentName): Entry | undefined {
    const [oldest] = this.#streams.get(agentKey(agent)) ?? [];
    return oldest;
  }

  #remove(entry: Entry, reason: Error): void {
    const { info } = entry;
    const wasActive = this.#isActive(entry);
    this.#entries.delete(info.sessionId);
    this.#count(info, -1);
    if (wasActive && !entry.givenUp) this.#withdraw(info.sessionId);
    // The next oldest stream of the same Go agent takes over.
    const next = deleteFrom(this.#streams, agentKey(info), entry) && wasActive ? this.#oldest(info) : undefined;
    if (next && !next.givenUp) this.#announce(next);
    this.#options.events.emit('session:close', info, reason.message);
  }

  #announce({ info, drainingSince, suspect }: Entry): void {
    const { incarnation, registration, changed } = this.#options;
    const { sessionId, tenant, agentId, identifiers, hubId, since } = info;
    const version = ++this.#version;
    const session: SessionRecord = {
      sessionId,
      tenant,
      agentId,
      identifiers,
      hubId,
      since,
      incarnation,
      version,
      draining: drainingSince !== undefined || suspect,
      ...(info.instance !== undefined && { instance: info.instance }),
      ...credentialOf(info),
    };
    changed({ kind: 'session', session });
    registration.announce(session);
  }

  #withdraw(sessionId: string): void {
    const { hubId, incarnation, registration, changed } = this.#options;
    const version = ++this.#version;
    changed({ kind: 'session-gone', sessionId, hubId, incarnation, version });
    registration.withdraw(sessionId, version);
  }
}

/** The name in an agent's credential, by which it can be recognised whatever id it claims. A shared credential has none. */
function credentialOf({ principal }: SessionInfo): Pick<SessionRecord, 'credential'> {
  return principal && !principal.shared ? { credential: principal.name } : {};
}

/**
 * Gives up a hub's sessions one by one: each when its agent has another one elsewhere, and the rest when the time is over or there is
 * nowhere to go. Until then it serves dials, because a gateway may know no other way to the agent.
 */
export async function giveUpSessions(sessions: SessionTable, directory: Directory, hubId: string): Promise<void> {
  const deadline = performance.now() + HUB.moveMs;
  let seen: ReadonlyMap<string, number> = new Map();
  while (sessions.taking > 0 && performance.now() < deadline && !isAlone(directory, hubId)) {
    const now = sessionsAtOtherHubs(directory, hubId);
    sessions.giveUp((session) => now.has(agentKey(session)) && seen.has(agentKey(session)));
    seen = now;
    await sleep(HUB.moveLookMs);
  }
  sessions.giveUp(() => true);
}

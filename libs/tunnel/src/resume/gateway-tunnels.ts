import { Backoff, type Clock, guarding, OpenTable, systemClock } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import {
  type Attached,
  type AttachRequest,
  DialAbort,
  type DialRequest,
  type Established,
  type NextHop,
  type ResumableTunnel,
} from '../dial.ts';
import { asDialError, type DialError, HungUp, LinkReset, PlaneEnded, SessionLost } from '../errors.ts';
import { attachesInTurns } from '../limits/in-turns.ts';
import type { Observation } from '../observe.ts';
import type { Stage } from '../pipeline.ts';
import { type AgentRoutes, attachThrough } from './attach.ts';
import {
  type AttachAnswer,
  type AttachPosition,
  AttachRefused,
  type Carrier,
  ENDED_TEXT,
  type ResumeOffer,
} from './carrier.ts';
import { Half } from './half.ts';
import { type Halves, halvesOf, type ResumeOptions } from './halves.ts';
import { AgentProcess, type AgentSession, agentKey, type ProcessName } from './processes.ts';

interface GatewayTunnelsOptions extends ResumeOptions, AgentRoutes {
  /** Names this process to hubs and agents: 16 hexadecimal digits. */
  readonly instance: string;
  readonly observation: Observation;
  readonly clock?: Clock;
}

/** An attach that waits for its turn. */
interface Attaching {
  readonly tenant: string;
  readonly start: () => Promise<void>;
}

/** The tunnels of a gateway that can be resumed. */
export class GatewayTunnels {
  readonly #shared: SharedByTunnels;
  readonly #offer: ResumeOffer;
  /** By agent: its processes that have tunnels. A change of the agent's sessions concerns these tunnels. */
  readonly #processes = new OpenTable<string, AgentProcess<GatewayTunnel>[]>();
  /** Agents whose sessions have changed in this tick of the event loop. */
  readonly #changed = new Set<string>();

  readonly #gone = (tunnel: GatewayTunnel, process: AgentProcess<GatewayTunnel>): void => {
    process.tunnels.delete(tunnel);
    if (process.tunnels.size > 0) return;
    const key = agentKey(tunnel);
    const others = this.#processes.get(key)?.filter((other) => other !== process);
    if (others?.length) this.#processes.set(key, others);
    else this.#processes.delete(key);
  };

  constructor(options: GatewayTunnelsOptions) {
    this.#offer = { halfAtPeer: true, gatewayInstance: options.instance };
    const halves = halvesOf(options, options.clock ?? systemClock);
    const attachInTurn = attachesInTurns(({ start }: Attaching) => start());
    this.#shared = { ...options, halves, attachInTurn, gone: this.#gone };
    const changed = (session: AgentSession['record']) => this.#checkSoon(session);
    const came = (session: AgentSession['record']) => {
      for (const process of this.#processes.get(agentKey(session)) ?? []) process.came(session);
      changed(session);
    };
    options.directory.watch({ came, went: changed, changed });
  }

  /** Lets the tunnels of dials be resumed if their agents can. `isthmus hold` has its own end of those that it offers to resume. */
  readonly resume: Stage = {
    name: 'resume',
    enter: (dial) => {
      dial.resumeOffer ??= this.#offer;
      return undefined;
    },
    answered: (dial, established) => {
      const { resumption } = established;
      if (!resumption || !dial.resumeOffer?.halfAtPeer) return;
      const { ticket, carrier } = resumption;
      const process = this.#process({ tenant: dial.tenant, agentId: established.agentId, instance: ticket.instance });
      const tunnel = new GatewayTunnel(this.#shared, dial, established, ticket.secret, process);
      process.tunnels.add(tunnel);
      tunnel.start(carrier);
      established.end = tunnel;
      established.resumable = tunnel;
      established.resumption = undefined;
    },
  };

  *[Symbol.iterator](): Iterator<GatewayTunnel> {
    for (const processes of this.#processes.values()) for (const { tunnels } of processes) yield* tunnels;
  }

  /** Bytes that new carriers would have to send again. Summed up at each call. */
  get kept(): number {
    let bytes = 0;
    for (const tunnel of this) bytes += tunnel.kept;
    return bytes;
  }

  /** Call when the ways to all agents have changed. */
  checkAll(): void {
    for (const processes of [...this.#processes.values()]) for (const process of processes) process.checkTunnels();
  }

  #process(name: ProcessName): AgentProcess<GatewayTunnel> {
    const key = agentKey(name);
    const processes = this.#processes.get(key) ?? [];
    const known = processes.find(({ name: { instance } }) => instance === name.instance);
    if (known) return known;
    const { directory, halves } = this.#shared;
    const process = new AgentProcess<GatewayTunnel>(name, directory, halves.clock);
    this.#processes.set(key, [...processes, process]);
    return process;
  }

  #checkSoon(session: AgentSession['record']): void {
    const key = agentKey(session);
    if (!this.#processes.has(key)) return;
    if (this.#changed.size === 0) setImmediate(() => this.#checkChanged());
    this.#changed.add(key);
  }

  /** Called once in a tick, because a changed record is reported as a session that goes and one that comes. */
  #checkChanged(): void {
    const agents = [...this.#changed];
    this.#changed.clear();
    for (const key of agents) for (const process of this.#processes.get(key) ?? []) process.checkTunnels();
  }
}

/** The half beside the caller's socket. Only this half attaches new carriers. */
export abstract class GatewayHalf extends Half {
  /** Attaches a new carrier to the agent's half. Must call `attachedTo` or `attachFailed` with the request's number, in bounded time. */
  protected abstract attach(request: AttachPosition): void;

  /** Unset until an attach fails. */
  #backoff: Backoff | undefined;
  #number = 0;
  /** The attach that has no answer yet. */
  #pendingAttach: AttachPosition | undefined;
  #cancelRetry: (() => void) | undefined;
  /** The time of the last successful attach. */
  #attachedAt = Number.NEGATIVE_INFINITY;

  /** Attaches another carrier: while the present one still carries, or now instead of later, because there may be a new way to the agent. */
  reattach(): void {
    if (!this.attached || this.state === 'running') this.#attach();
  }

  /**
   * @param adopting called just before the tunnel goes on with it: the carrier may have brought its end, or the tunnel's, already
   * @returns whether the tunnel goes on with it
   */
  attachedTo(number: number, carrier: Carrier, answer: AttachAnswer, adopting: () => void = () => {}): boolean {
    const asked = this.#pendingAttach;
    if (asked?.number !== number) {
      carrier.drop();
      return false;
    }
    this.#pendingAttach = undefined;
    if (this.state === 'gone') {
      // Its end left on a carrier that the agent has replaced by this one.
      carrier.drop(new Error('the tunnel has ended'));
      return false;
    }
    this.#cancelRetry?.();
    const reason = this.untoldEnd ?? this.#disorderOf(answer);
    if (reason) {
      carrier.drop(reason);
      this.giveUp(reason);
      return false;
    }
    this.#attachedAt = this.halves.clock.now();
    adopting();
    this.adopt(carrier, answer, answer.from);
    return true;
  }

  /** @param final whether no other attach can succeed */
  attachFailed(number: number, error: Error, final: boolean): void {
    if (this.#pendingAttach?.number !== number || this.state === 'gone') return;
    this.#pendingAttach = undefined;
    // The present carrier still carries, which proves more than a failed attach.
    if (this.attached) return;
    if (final) this.giveUp(error);
    else this.#attachLater();
  }

  /**
   * Attaches at once, unless the last carrier did not last: an agent that accepts an attach and drops the carrier must not keep the gateway
   * busy.
   */
  protected override onDetached(_reason: Error): void {
    if (this.#pendingAttach) return;
    if (this.halves.clock.now() - this.#attachedAt < TUNNEL.carriedMs) this.#attachLater();
    else {
      this.#backoff = undefined;
      this.#attach();
    }
  }

  protected override disappear(): void {
    this.#cancelRetry?.();
    super.disappear();
  }

  #attachLater(): void {
    this.#backoff ??= new Backoff(TUNNEL.attachRetryMs, TUNNEL.attachRetryMostMs, this.halves.clock.random);
    this.#cancelRetry = this.halves.clock.after(this.#backoff.next(), () => this.#attach());
  }

  #attach(): void {
    if (this.#pendingAttach || this.state === 'gone') return;
    this.#cancelRetry?.();
    this.#pendingAttach = { number: ++this.#number, ...this.position };
    this.attach(this.#pendingAttach);
  }

  #disorderOf(answer: AttachAnswer): Error | undefined {
    const { received, from } = answer;
    const sent = this.outgoing.next(received);
    const position = this.taken;
    const fault =
      this.faultOf(answer) ??
      (received < sent ? `it asks for byte ${received}, and has taken those before ${sent}` : undefined) ??
      (from > position ? `it goes on with byte ${from}, and byte ${position} is next` : undefined);
    return fault === undefined
      ? undefined
      : new PlaneEnded(`the agent's end of the tunnel is in disorder: ${fault}`, { by: 'agent' });
  }
}

/** What all tunnels of a gateway have in common. */
interface SharedByTunnels extends Omit<GatewayTunnelsOptions, 'clock'> {
  readonly halves: Halves;
  readonly gone: (tunnel: GatewayTunnel, process: AgentProcess<GatewayTunnel>) => void;
  /** Starts an attach when it is the tenant's turn. */
  readonly attachInTurn: (attach: Attaching) => Promise<void>;
}

/** The half of one tunnel at a gateway. When it loses its way to the agent's process, it finds another. */
class GatewayTunnel extends GatewayHalf implements ResumableTunnel {
  readonly tenant: string;
  readonly agentId: string;
  readonly dial: DialRequest;
  sessionId: string;
  hubId: string;
  moves = 0;
  readonly #shared: SharedByTunnels;
  readonly #process: AgentProcess<GatewayTunnel>;
  /** Needed to attach: see `ResumeTicket`. */
  readonly #secret: string;
  /** Sessions that were tried or lost since the last successful attach. Unset for most tunnels, because there are many tunnels. */
  #tried: Set<string> | undefined;
  /** Since when the tunnel is detached, and why. Unset while it is attached. */
  #lost: { readonly at: number; readonly reason: Error } | undefined;
  /** Aborts the attach that is under way. */
  #attachSignal: DialAbort | undefined;
  #cancelCheck: (() => void) | undefined;
  /** Takes the tunnel out of its session's count. */
  #leaveSession: (() => void) | undefined;

  /**
   * Call `start` next.
   * @param session the one that the dial went through
   * @param process the agent's, at the other end
   */
  constructor(
    shared: SharedByTunnels,
    dial: DialRequest,
    { sessionId, hubId }: Established,
    secret: string,
    process: AgentProcess<GatewayTunnel>,
  ) {
    super(shared.halves);
    this.#shared = shared;
    this.#process = process;
    this.tenant = process.name.tenant;
    this.agentId = process.name.agentId;
    this.#secret = secret;
    this.dial = dial;
    this.sessionId = sessionId;
    this.hubId = hubId;
  }

  /** @param carrier the stream that the dial was answered on */
  override start(carrier: Carrier): void {
    this.#leaveSession = this.#shared.directory.enter(this.sessionId);
    super.start(carrier);
    const session = this.#shared.directory.session(this.sessionId);
    // It may have begun to drain, or ended, while the dial was under way.
    if (!session || session.state.draining) this.checkSession();
  }

  /** Attaches if the tunnel is detached, and moves to another session if its own is draining or gone. */
  checkSession(sessions: readonly AgentSession[] = this.#process.sessions()): void {
    this.#cancelCheck?.();
    this.#cancelCheck = undefined;
    if (this.state === 'gone') return;
    if (!this.attached) {
      // An attach that waits for an agent without sessions would only delay the tunnel's end.
      if (sessions.length === 0) this.#attachSignal?.abort();
      this.reattach();
      return;
    }
    const isOwn = ({ record }: AgentSession) => record.sessionId === this.sessionId;
    const stays = sessions.some((session) => isOwn(session) && !session.state.draining);
    if (!stays && sessions.some((session) => !isOwn(session) && !session.state.draining)) this.reattach();
  }

  get #clock(): Clock {
    return this.#shared.halves.clock;
  }

  protected override onDetached(reason: Error): void {
    this.#lost ??= { at: this.#clock.now(), reason };
    this.#tryLast(this.sessionId);
    if (reason instanceof HungUp) this.#process.hungUp(this.sessionId);
    else if (reason instanceof LinkReset) this.#process.lost(this.sessionId);
    this.#shared.observation.events.emit('tunnel:detach', this, reason);
    super.onDetached(reason);
  }

  protected override attach(position: AttachPosition): void {
    const { tenant } = this;
    const { observation, attachInTurn } = this.#shared;
    const fault = (error: Error) => {
      observation.events.emit('fault', 'resume', `agent ${this.agentId}`, error);
      this.#failed(position, error);
    };
    guarding(fault)(() => attachInTurn({ tenant, start: () => this.#tryAttach(position) }))();
  }

  async #tryAttach(position: AttachPosition): Promise<void> {
    // The tunnel may have ended while the attach waited for its turn.
    if (this.state === 'gone') return;
    const session = this.#chooseSession();
    const link = session && this.#shared.nextHop(session.hubId);
    if (session && link) {
      await this.#attachThrough(position, session, link);
      return;
    }
    this.#tried = undefined;
    this.#failed(position, new SessionLost(`there is no way to agent ${this.agentId}`));
  }

  async #attachThrough(
    position: AttachPosition,
    session: AgentSession['record'],
    link: Pick<NextHop, 'attach'>,
  ): Promise<void> {
    const { observation, directory, suspects } = this.#shared;
    const signal = new DialAbort();
    // It names the tunnel as the dial that began it.
    const { id, tenant, destination, caller, callerName, traceparent } = this.dial;
    const request: AttachRequest = {
      ...{ id, tenant, destination, caller, callerName, traceparent },
      session: session.sessionId,
      process: this.#process.name,
      halfAtPeer: true,
      claim: { ...position, secret: this.#secret },
      deadline: performance.now() + TUNNEL.attachLongestMs,
      signal,
    };
    const { attachMs: silentMs } = TUNNEL;
    const { sweep: deadlines } = this.#shared.halves;
    const options = { directory, suspects, ...observation, deadlines, silentMs, ownDeadline: true };
    this.#tryLast(session.sessionId);
    this.#attachSignal = signal;
    let attached: Attached;
    try {
      attached = await attachThrough(link, session, request, options);
    } catch (thrown) {
      const error = asDialError(thrown);
      this.#failed(position, error, error.cause instanceof AttachRefused ? finalOf(error) : undefined);
      return;
    } finally {
      if (this.#attachSignal === signal) this.#attachSignal = undefined;
    }
    const through = () => this.#attachedThrough(session.sessionId, session.hubId);
    const { carrier, answer } = attached;
    try {
      // The new session may be draining already.
      if (this.attachedTo(position.number, carrier, answer, through)) this.checkSession();
    } catch (defect) {
      carrier.drop(defect as Error);
      this.giveUp(defect as Error);
      throw defect;
    }
  }

  /** Chooses a session for the next attach. Those that were tried come last. An attached tunnel moves to no session that is draining. */
  #chooseSession(): AgentSession['record'] | undefined {
    const { tenant, agentId: agent, attached } = this;
    const { instance } = this.#process.name;
    const { host } = this.dial.destination;
    const own = attached ? [this.sessionId] : [];
    for (const tried of [new Set([...(this.#tried ?? []), ...own]), new Set(own)])
      for (const { session, rank } of this.#shared.route({ tenant, host, agent, instance, tried })) {
        if (!rank) break;
        if (!attached || !session.state.draining) return session.record;
      }
    return undefined;
  }

  /** @param final why no other attach can succeed, if the agent has said so */
  #failed({ number }: AttachPosition, error: Error, final = this.#agentGone()): void {
    this.attachFailed(number, final ?? error, final !== undefined);
    // The move failed. It may succeed later.
    if (this.attached) this.#cancelCheck ??= this.#clock.after(TUNNEL.moveAgainMs, () => this.checkSession());
  }

  /** Returns why the agent will not come back, or undefined while it may. */
  #agentGone(): Error | undefined {
    return this.#lost && this.#process.endAfter(this.#lost.reason);
  }

  /** This session is tried again only after all others. */
  #tryLast(sessionId: string): void {
    this.#tried ??= new Set();
    this.#tried.add(sessionId);
  }

  #attachedThrough(sessionId: string, hubId: string): void {
    const { directory, observation } = this.#shared;
    const clock = this.#clock;
    this.#leaveSession?.();
    this.#leaveSession = directory.enter(sessionId);
    this.sessionId = sessionId;
    this.hubId = hubId;
    this.moves++;
    this.#tried = undefined;
    const paused = this.#lost ? clock.now() - this.#lost.at : 0;
    this.#lost = undefined;
    observation.events.emit('tunnel:attach', this, paused);
  }

  protected override gone(): void {
    this.#cancelCheck?.();
    this.#leaveSession?.();
    if (this.#lost) this.#shared.observation.events.emit('tunnel:give-up', this);
    this.#shared.gone(this, this.#process);
  }
}

/**
 * An agent that knows the tunnel says why it has ended. If it does not know the tunnel, it has lost it. A gateway judges what `isthmus hold`
 * attaches as it judges dials.
 */
function finalOf({ code, message, cause }: DialError): Error {
  if (message.startsWith(ENDED_TEXT)) return new Error(message, { cause });
  const by = code === 'destination_ip_prohibited' ? 'policy' : code === 'http_request_denied' ? 'credential' : 'agent';
  return new SessionLost(message, { by, cause });
}

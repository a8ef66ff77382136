import { type Clock, guarding } from '@isthmus/runtime';
import type { Dial, DialRequest } from '../dial/dial.ts';
import { DialAbort } from '../dial/dial-abort.ts';
import { asDialError, type DialError, HungUp, SessionLost } from '../dial/errors.ts';
import type { ResumableTunnel } from '../events/events.ts';
import { inSpan } from '../events/trace.ts';
import type { SessionRecord } from '../replica/records.ts';
import { ranking } from '../route/ranking.ts';
import { AttachRefused, type AttachRequest, type Carrier, ENDED_TEXT } from './carrier.ts';
import { GatewayHalf, type GatewayOuter } from './gateway-half.ts';
import type { Attaching, GatewayTunnelsOptions } from './gateway-tunnels.ts';
import { HalfStream } from './half-stream.ts';
import type { Halves } from './options.ts';
import type { ResumeGrant } from './request.ts';

/** How long the answer to an attach may take, in milliseconds. Another session is tried then. */
const ATTACH_TIMEOUT = 2000;

/** When it is looked at again whether a tunnel can move, after that failed, in milliseconds. */
const LOOK_AGAIN_MS = 500;

/** Sessions of one agent that go within this time went together, in milliseconds. */
const TOGETHER_MS = 2000;

const UNREADABLE = 'the answer to the attach does not say where to go on';

export interface GatewayTunnelOptions {
  /** The gateway's: the same for all its tunnels. */
  readonly shared: SharedByTunnels;
  readonly dial: DialRequest;
  /** The session that the dial went through. */
  readonly session: Pick<SessionRecord, 'agentId' | 'sessionId' | 'hubId'>;
  readonly grant: ResumeGrant;
}

/** What all tunnels of a gateway have in common. */
export interface SharedByTunnels extends Omit<GatewayTunnelsOptions, 'clock'> {
  readonly halves: Halves;
  readonly gone: (tunnel: GatewayTunnel) => void;
  /** Starts an attach when it is the tenant's turn. */
  readonly attachInTurn: (attach: Attaching) => Promise<void>;
}

/** A gateway's end of a tunnel to an agent that can resume it: finds another way to the agent's process whenever it has lost one. */
export class GatewayTunnel extends HalfStream implements GatewayOuter, ResumableTunnel {
  override readonly half: GatewayHalf;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly instance: string;
  sessionId: string;
  hubId: string;
  moves = 0;
  readonly #shared: SharedByTunnels;
  readonly #secret: string;
  /** Sessions through which an attach has failed since the last one that succeeded. Unset for most tunnels: there are many. */
  #tried: Set<string> | undefined;
  /** Set while it is detached: when that began, and why. */
  #lost: { readonly at: number; readonly reason: Error } | undefined;
  /** Why it is final that there is no way. */
  #final: Error | undefined;
  /** Whether the agent's process has several sessions, which do not all fail at once while it lives; and when it last had. */
  #several = false;
  #severalUntil: number | undefined;
  #over = false;
  #cancelLook: (() => void) | undefined;
  /** Takes the tunnel out of its session's count. */
  #leave: (() => void) | undefined;

  /** Call `start` next. */
  constructor({ shared, dial, session, grant }: GatewayTunnelOptions) {
    super();
    this.#shared = shared;
    this.#secret = grant.secret;
    this.dial = dial;
    this.agentId = session.agentId;
    this.instance = grant.instance;
    this.sessionId = session.sessionId;
    this.hubId = session.hubId;
    this.half = new GatewayHalf(this, shared.halves);
  }

  /** @param carrier the stream that the dial was answered on */
  start(carrier: Carrier): void {
    this.half.start(carrier);
    this.look();
  }

  override get tenant(): string {
    return this.dial.tenant;
  }

  get resumable(): this {
    return this;
  }

  get attached(): boolean {
    return this.half.attached;
  }

  get kept(): number {
    return this.half.kept;
  }

  whenLeft(left: () => void): void {
    if (this.#over) left();
    else this.#leave = left;
  }

  /** Call when a session of its agent has come, gone or changed. Moves to another session if its own is about to go. */
  look(): void {
    this.#cancelLook?.();
    this.#cancelLook = undefined;
    if (this.#over) return;
    let own: { readonly draining: boolean } | undefined;
    let others = 0;
    for (const place of this.#shared.directory.ofAgent(this)) {
      const { sessionId, instance } = place.route.record;
      if (instance !== this.instance) continue;
      if (sessionId === this.sessionId) own = place;
      else if (!place.draining) others++;
    }
    this.#sawSessions((own ? 1 : 0) + others);
    if (!this.attached) this.half.retry();
    else if (others > 0 && (!own || own.draining)) this.half.move();
  }

  get #clock(): Clock {
    return this.#shared.halves.clock;
  }

  #sawSessions(count: number): void {
    if (this.#several && count < 2) this.#severalUntil = this.#clock.now();
    this.#several = count > 1;
  }

  detached(reason: Error): void {
    this.#lost ??= { at: this.#clock.now(), reason };
    this.#shared.observation.events.emit('tunnel:detach', this, reason);
  }

  attach(request: AttachRequest): void {
    const { tenant } = this;
    const { observation, attachInTurn } = this.#shared;
    const fault = (error: Error) => void observation.events.emit('fault', 'resume', `agent ${this.agentId}`, error);
    guarding(fault)(() => attachInTurn({ tenant, start: () => this.#seek(request) }))();
  }

  async #seek(request: AttachRequest): Promise<void> {
    // It may have ended while it waited for its turn.
    if (this.#over) return;
    const way = this.#way();
    const dial = way && this.#shared.hub(way.hubId);
    if (way && dial) {
      await this.#ask(request, way, dial);
      return;
    }
    this.#tried = undefined;
    this.#final ??= this.#agentGone();
    this.#failed(request, this.#final ?? new SessionLost(`there is no way to agent ${this.agentId}`));
  }

  async #ask(request: AttachRequest, { sessionId, hubId }: SessionRecord, dial: Dial): Promise<void> {
    const { observation, suspects } = this.#shared;
    const clock = this.#clock;
    const deadline = performance.now() + ATTACH_TIMEOUT;
    const attach = { ...request, secret: this.#secret };
    const asked: DialRequest = { ...partOf(this.dial), session: sessionId, deadline, signal: new DialAbort() };
    const span = observation.tracer.start('gateway.attach', asked);
    const start = clock.now();
    this.#tried ??= new Set();
    this.#tried.add(sessionId);
    let answered = false;
    try {
      const established = await dial({
        ...inSpan(asked, span),
        resume: {
          attach,
          carry: ({ attached }, open) => {
            if (!attached) throw new Error(UNREADABLE);
            const carrier = open();
            answered = true;
            if (this.half.attachedTo(request.number, carrier, attached)) this.#went(sessionId, hubId);
            return this;
          },
        },
      });
      if (!answered) {
        established.end.abort(new SessionLost(UNREADABLE));
        throw new Error(UNREADABLE);
      }
      span.end({ ms: clock.now() - start, agentId: this.agentId, sessionId, hubId });
    } catch (thrown) {
      const error = asDialError(thrown);
      span.end({ ms: clock.now() - start, error, agentId: this.agentId, sessionId, hubId });
      if (error.expired) suspects.accuse(sessionId, ...(hubId === this.#shared.directory.ownHub ? [] : [hubId]));
      if (error.code === 'destination_unavailable' && error.retryable) this.#shared.directory.forget(sessionId);
      if (error.cause instanceof AttachRefused) this.#final = finalOf(error);
      this.#failed(request, error);
    }
  }

  /** Sessions that were tried come last. A tunnel that has a carrier does not move to a session that is about to go. */
  #way(): SessionRecord | undefined {
    const { directory, zone } = this.#shared;
    const { host } = this.dial.destination;
    const choice = { tenant: this.tenant, agent: this.agentId, instance: this.instance, host, zone, strategies: [] };
    const own = this.attached ? [this.sessionId] : [];
    for (const excluded of [new Set([...(this.#tried ?? []), ...own]), new Set(own)])
      for (const tier of ranking(this.#shared, { ...choice, excluded })) {
        const route = this.attached && tier.place === 'draining' ? undefined : directory.draw([tier]);
        if (route) return route.record;
      }
    return undefined;
  }

  #failed({ number }: AttachRequest, error: Error): void {
    this.half.attachFailed(number, error, this.#final !== undefined);
    // A move: what was in its way may pass.
    if (this.attached && !this.#over) this.#cancelLook ??= this.#clock.after(LOOK_AGAIN_MS, () => this.look());
  }

  /** Why there is no agent to go on with; undefined while it may come back. */
  #agentGone(): Error | undefined {
    if (!(this.#lost?.reason instanceof HungUp)) return undefined;
    let restarted = false;
    for (const { route } of this.#shared.directory.ofAgent(this)) {
      const { instance } = route.record;
      if (instance === this.instance) return undefined;
      restarted ||= instance !== undefined;
    }
    const { now } = this.#clock;
    const together = this.#several || (this.#severalUntil !== undefined && now() - this.#severalUntil < TOGETHER_MS);
    if (!together && !restarted) return undefined;
    const what = restarted ? 'has restarted' : 'has closed all its connections';
    return new SessionLost(`agent ${this.agentId} ${what}`, { cause: this.#lost.reason });
  }

  #went(sessionId: string, hubId: string): void {
    const { directory, observation } = this.#shared;
    const clock = this.#clock;
    this.#leave?.();
    this.#leave = directory.enter(sessionId);
    this.sessionId = sessionId;
    this.hubId = hubId;
    this.moves++;
    this.#tried = undefined;
    const paused = this.#lost ? clock.now() - this.#lost.at : 0;
    this.#lost = undefined;
    observation.events.emit('tunnel:attach', this, paused);
    // Something may have changed meanwhile.
    this.look();
  }

  override gone(): void {
    this.#over = true;
    this.#cancelLook?.();
    this.#leave?.();
    if (this.#lost) {
      const { events } = this.#shared.observation;
      events.emit('tunnel:give-up', this, this.half.givenUp, this.#final ?? this.#lost.reason);
    }
    this.#shared.gone(this);
  }
}

/** The agent tells why a tunnel has ended. Otherwise it does not know it, which nobody meant. */
function finalOf({ message, cause }: DialError): Error {
  return message.startsWith(ENDED_TEXT) ? new Error(message, { cause }) : new SessionLost(message, { cause });
}

/** What an attach has of the dial that began the tunnel. */
function partOf(dial: DialRequest): Omit<DialRequest, 'deadline' | 'signal'> {
  const { id, tenant, destination, caller, callerName, traceparent } = dial;
  return {
    id,
    tenant,
    destination,
    ...(caller && { caller }),
    ...(callerName !== undefined && { callerName }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

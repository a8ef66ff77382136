import { RandomSet } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import type { DialRequest, Established, ResumableTunnel, TunnelEnd, TunnelOutcome } from './dial.ts';
import type { PlaneEvents, TunnelInfo, TunnelRole } from './events.ts';
import { Splice } from './splice.ts';

/** What a tunnel needs of the answer to its dial or attach. */
export type Carried = Pick<Established, 'end' | 'agentId' | 'sessionId' | 'hubId' | 'meter' | 'resumable'>;

/** A tunnel that carries bytes. Its counts are live. */
export class Tunnel implements TunnelInfo {
  readonly role: TunnelRole;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly resumable: ResumableTunnel | undefined;
  readonly since = Date.now();
  /** Where it began. */
  readonly #sessionId: string;
  readonly #hubId: string;
  readonly #splice: Splice;
  #outcome: TunnelOutcome | undefined;
  /** Made when somebody waits for it. */
  #done: PromiseWithResolvers<TunnelOutcome> | undefined;

  /**
   * @param dial the dial or attach that was answered
   * @param halfClosedMs see `Splice`
   */
  constructor(
    role: TunnelRole,
    dial: DialRequest,
    caller: TunnelEnd,
    established: Carried,
    events: PlaneEvents,
    halfClosedMs?: number,
  ) {
    this.role = role;
    this.dial = dial;
    this.agentId = established.agentId;
    this.#sessionId = established.sessionId;
    this.#hubId = established.hubId;
    this.resumable = established.resumable;
    const start = performance.now();
    let silent = true;
    const passed = (ms: number) => {
      events.emit('caller:write', ms);
      if (silent) events.emit('tunnel:first-byte', this, performance.now() - start);
      silent = false;
    };
    const options = {
      written: role === 'gateway' ? passed : undefined,
      fault: (error: Error) => void events.emit('fault', `${role} tunnel`, dial.caller?.remote ?? '', error),
      meter: established.meter,
      stalled: () => void events.emit('tunnel:stalled', role === 'api-server' ? 'hub' : role),
      halfClosedMs,
      ended: (outcome: TunnelOutcome) => {
        this.#outcome = outcome;
        events.emit('tunnel:close', this, outcome, performance.now() - start);
        this.#done?.resolve(outcome);
      },
    };
    const { end } = established;
    this.#splice = new Splice(caller, end, options);
    events.emit('tunnel:open', this);
  }

  /** Resolves when it has ended. */
  get done(): Promise<TunnelOutcome> {
    if (this.#outcome) return Promise.resolve(this.#outcome);
    this.#done ??= Promise.withResolvers();
    return this.#done.promise;
  }

  get sessionId(): string {
    return this.resumable?.sessionId ?? this.#sessionId;
  }

  get hubId(): string {
    return this.resumable?.hubId ?? this.#hubId;
  }

  get up(): number {
    return this.#splice.up;
  }

  get down(): number {
    return this.#splice.down;
  }

  get halfClosed(): TunnelInfo['halfClosed'] {
    return this.#splice.halfClosed;
  }

  /** See `Splice.passesOn`. */
  get passesOn(): boolean {
    return this.#splice.passesOn;
  }

  get queued(): number {
    return this.#splice.queued;
  }

  /** See `Splice.idleMs`. */
  get idleMs(): number {
    return this.#splice.idleMs;
  }

  /** See `Splice.endIdle`. */
  endIdle(): void {
    this.#splice.endIdle(this.role === 'gateway' || this.role === 'agent' ? this.role : 'path');
  }

  /** See `Splice.abort`. */
  abort(reason: Error): void {
    this.#splice.abort(reason);
  }
}

/** The tunnels that run in this process, tracked through its events. */
export class TunnelTable {
  readonly #events: PlaneEvents;
  readonly #tunnels = new RandomSet<TunnelInfo>();
  readonly #idle: (() => void)[] = [];

  constructor(events: PlaneEvents) {
    this.#events = events;
    events.on('tunnel:open', (tunnel) => this.#tunnels.add(tunnel));
    events.on('tunnel:close', (tunnel) => {
      this.#tunnels.delete(tunnel);
      if (this.#tunnels.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    });
  }

  get size(): number {
    return this.#tunnels.size;
  }

  [Symbol.iterator](): Iterator<TunnelInfo> {
    return this.#tunnels[Symbol.iterator]();
  }

  /** Aborts the tunnel that a dial opened, in each role that this process has. @returns how many were found */
  abort(dialId: string, reason: Error): number {
    const tunnels = [...this.#tunnels].filter((tunnel) => tunnel.dial.id === dialId);
    for (const tunnel of tunnels) if (tunnel instanceof Tunnel) tunnel.abort(reason);
    return tunnels.length;
  }

  /** Ends the tunnels that `which` selects, also those that could go on through another session. */
  abortEach(which: (tunnel: TunnelInfo) => boolean, reason: Error): void {
    for (const tunnel of [...this.#tunnels]) if (tunnel instanceof Tunnel && which(tunnel)) tunnel.abort(reason);
  }

  /**
   * Ends in order, until it is disposed of, each tunnel of a role that has been idle for `idleMs`. Call it when a drain begins: the
   * connections that callers keep for their next requests would otherwise hold a process that drains until its time is over.
   * @param idleMs in milliseconds. 0: no tunnel is ended
   */
  endIdle(role: TunnelRole, idleMs: number): Disposable {
    const sweep = () => {
      for (const tunnel of [...this.#tunnels]) {
        if (!(tunnel instanceof Tunnel) || tunnel.role !== role || tunnel.idleMs < idleMs) continue;
        tunnel.endIdle();
        this.#events.emit('tunnel:idle', tunnel);
      }
    };
    const timer = idleMs > 0 ? setInterval(sweep, Math.min(TUNNEL.idleCheckMs, idleMs)).unref() : undefined;
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  /** Resolves as soon as no tunnel runs. */
  idle(): Promise<void> {
    if (this.#tunnels.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }
}

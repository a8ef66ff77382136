import type { DialRequest, Established, TunnelEnd } from './dial.ts';
import { PlaneEnded } from './errors.ts';
import type { ClosedBy, PlaneEvents, Role, TunnelInfo, TunnelOutcome } from './events.ts';
import { Splice } from './splice.ts';

/** A tunnel that carries bytes. Its figures are live. */
export class Tunnel implements TunnelInfo {
  readonly role: Role;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  readonly since = Date.now();
  readonly done: Promise<TunnelOutcome>;
  readonly #splice: Splice;

  constructor(role: Role, dial: DialRequest, caller: TunnelEnd, established: Established, events: PlaneEvents) {
    this.role = role;
    this.dial = established.dial ?? dial;
    this.agentId = established.agentId;
    this.sessionId = established.sessionId;
    this.hubId = established.hubId;
    const start = performance.now();
    const written = role === 'gateway' ? (ms: number) => void events.emit('caller:write', ms) : undefined;
    this.#splice = new Splice(caller, established.end, written);
    events.emit('tunnel:open', this);
    this.done = this.#splice.done.then((result) => {
      const outcome: TunnelOutcome = { ms: performance.now() - start, ...result };
      events.emit('tunnel:close', this, outcome);
      return outcome;
    });
  }

  get up(): number {
    return this.#splice.up;
  }

  get down(): number {
    return this.#splice.down;
  }

  get queued(): number {
    return this.#splice.queued;
  }

  /** @param closedBy on whose behalf */
  abort(reason: Error, closedBy: ClosedBy = 'plane'): void {
    this.#splice.abort(planeEnded(reason, closedBy), closedBy);
  }
}

/** So that each part of the plane that the tunnel runs through knows it too. */
function planeEnded(reason: Error, closedBy: ClosedBy): Error {
  if (closedBy !== 'plane' || reason instanceof PlaneEnded) return reason;
  return new PlaneEnded(reason.message, { cause: reason });
}

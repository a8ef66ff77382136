import { Backoff } from '@isthmus/runtime';
import { TUNNEL } from '../defaults.ts';
import { PlaneEnded } from '../errors.ts';
import type { AttachAnswer, AttachPosition, Carrier } from './carrier.ts';
import { Half } from './half.ts';

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

import { Backoff } from '@isthmus/runtime';
import { PlaneEnded } from '../dial/errors.ts';
import type { GiveUpReason } from '../events/events.ts';
import type { AttachAnswer, AttachRequest, Carrier, Outer } from './carrier.ts';
import { Half } from './half.ts';

/**
 * How long it waits after an attach that failed, in milliseconds. At first a moment: when an agent's process dies, one hub may notice it
 * before the next, through which the gateway then asks in vain.
 */
const RETRY = { first: 10, cap: 1000 };

/** A carrier that carried for so long was lost by accident, in milliseconds. */
const LASTING_MS = 1000;

/** What lies beyond a gateway's half. */
export interface GatewayOuter extends Outer {
  /** Asks the agent's half to go on with a new carrier. Call `attachedTo` or `attachFailed` with its number, in bounded time. */
  attach(request: AttachRequest): void;
  /** Called for each carrier that was lost, before the attach that follows. */
  detached(reason: Error): void;
}

/** The half beside the caller's socket. It alone asks for new carriers. */
export class GatewayHalf extends Half<GatewayOuter> {
  /** An agent that lives connects again after a second or two. */
  protected override get patienceMs(): number {
    return 5000;
  }

  /** Unset until an attach fails. */
  #backoff: Backoff | undefined;
  #number = 0;
  /** The attach that has no answer yet. */
  #asked: AttachRequest | undefined;
  #cancelRetry: (() => void) | undefined;
  /** How far the tunnel had got when the last attach succeeded, and when that was. */
  #progressed: number | undefined;
  #attachedAt = Number.NEGATIVE_INFINITY;
  /** Why the tunnel ends, which the other half does not know yet. */
  #lastWord: Error | undefined;
  #givenUp: GiveUpReason = 'timeout';

  /** Why it is gone, if it was detached. */
  get givenUp(): GiveUpReason {
    return this.#givenUp;
  }

  /** Asks for another carrier, while the present one still carries. */
  move(): void {
    if (this.attached && this.state === 'running') this.#ask();
  }

  /** There is a new way to the agent. Call it whenever a wait for the next attach may be cut short. */
  retry(): void {
    if (!this.attached) this.#ask();
  }

  /** @returns whether the tunnel goes on with it */
  attachedTo(number: number, carrier: Carrier, answer: AttachAnswer): boolean {
    const asked = this.#asked;
    if (asked?.number !== number) {
      carrier.drop();
      return false;
    }
    this.#asked = undefined;
    if (this.state === 'gone') {
      // Its last word left on a carrier that the agent has dropped for this one.
      carrier.abort(new Error('the tunnel has ended'));
      return false;
    }
    this.#cancelRetry?.();
    const reason = this.#lastWord ?? this.#disorder(answer);
    if (reason) {
      this.#blameAgent();
      carrier.abort(reason);
      this.giveUp(reason);
      return false;
    }
    this.adopt(carrier, answer, answer.from);
    this.#progressed = this.progress;
    this.#attachedAt = this.halves.clock.now();
    return true;
  }

  /** @param final whether no other attach can succeed */
  attachFailed(number: number, error: Error, final: boolean): void {
    if (this.#asked?.number !== number || this.state === 'gone') return;
    this.#asked = undefined;
    // A carrier that carries proves more.
    if (this.attached) return;
    if (!final) this.#askLater();
    else {
      this.#blameAgent();
      this.giveUp(error);
    }
  }

  /**
   * Asks at once, unless the last attach brought nothing or did not last: an agent that accepts and drops, with a byte each time, must not
   * keep the gateway busy.
   */
  protected override onDetached(reason: Error): void {
    this.outer.detached(reason);
    if (this.#asked) return;
    const lasted = this.halves.clock.now() - this.#attachedAt >= LASTING_MS;
    if (this.progress === this.#progressed || !lasted) {
      this.#askLater();
      return;
    }
    this.#backoff = undefined;
    this.#ask();
  }

  /** The next attach says it. */
  protected override onAborted(reason: Error): void {
    this.#lastWord = reason;
    this.#givenUp = 'end';
  }

  /** The end has left with the last mark. The agent's answers it, and then knows that the tunnel is complete. */
  protected override onComplete(): void {
    this.#givenUp = 'end';
  }

  protected override disappear(): void {
    this.#cancelRetry?.();
    super.disappear();
  }

  #blameAgent(): void {
    if (this.state === 'running') this.#givenUp = 'agent';
  }

  #askLater(): void {
    this.#backoff ??= new Backoff(RETRY.first, RETRY.cap, this.halves.clock.random);
    this.#cancelRetry = this.halves.clock.after(this.#backoff.next(), () => this.#ask());
  }

  #ask(): void {
    if (this.#asked || this.state === 'gone') return;
    this.#cancelRetry?.();
    this.#asked = { number: ++this.#number, ...this.position };
    this.outer.attach(this.#asked);
  }

  #disorder(answer: AttachAnswer): Error | undefined {
    const { received, from } = answer;
    const { sent, position } = { sent: this.sendingFrom(received), position: this.position.received };
    const fault =
      this.faultOf(answer) ??
      (received < sent ? `it asks for byte ${received}, and has taken those before ${sent}` : undefined) ??
      (from > position ? `it goes on with byte ${from}, and byte ${position} is next` : undefined);
    return fault === undefined ? undefined : new PlaneEnded(`the agent's end of the tunnel is in disorder: ${fault}`);
  }
}

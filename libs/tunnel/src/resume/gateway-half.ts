import { Backoff } from '@isthmus/runtime';
import type { AttachAnswer, AttachRequest, Carrier } from './carrier.ts';
import { Half, type HalfOptions } from './half.ts';

/** How long it waits after an attach that failed, in milliseconds. */
const RETRY = { first: 50, cap: 1000 };

export interface GatewayHalfOptions extends HalfOptions {
  /** Asks the agent's half to go on with a new carrier. Call `attachedTo` or `attachFailed` with its number, in bounded time. */
  readonly attach: (request: AttachRequest) => void;
}

/** The half beside the caller's socket. It alone asks for new carriers. */
export class GatewayHalf extends Half {
  readonly #attach: (request: AttachRequest) => void;
  readonly #backoff: Backoff;
  #number = 0;
  /** The attach that has no answer yet. */
  #asked: AttachRequest | undefined;
  #cancelRetry: (() => void) | undefined;
  /** How far the tunnel had got when the last carrier came. */
  #progressed: number | undefined;
  /** Why the tunnel ends, which the other half does not know yet. */
  #lastWord: Error | undefined;

  constructor(options: GatewayHalfOptions) {
    super(options);
    this.#attach = options.attach;
    this.#backoff = new Backoff(RETRY.first, RETRY.cap, options.clock.random);
  }

  /** Asks for another carrier, while the present one still carries. */
  move(): void {
    if (this.attached && this.state === 'running') this.#ask();
  }

  /** There is a new way to the agent. Call it whenever a wait for the next attach may be cut short. */
  retry(): void {
    if (!this.attached) this.#ask();
  }

  attachedTo(number: number, carrier: Carrier, answer: AttachAnswer): void {
    const asked = this.#asked;
    if (asked?.number !== number || this.state === 'gone') {
      carrier.drop();
      return;
    }
    this.#asked = undefined;
    const reason = this.#lastWord ?? this.#disorder(answer);
    if (reason) {
      carrier.abort(reason);
      this.giveUp(reason);
      return;
    }
    this.adopt(carrier, answer, answer.from);
    this.#progressed = this.progress;
  }

  /** @param final whether no other attach can succeed */
  attachFailed(number: number, error: Error, final: boolean): void {
    if (this.#asked?.number !== number || this.state === 'gone') return;
    this.#asked = undefined;
    // A carrier that carries proves more.
    if (this.attached) return;
    if (final) this.giveUp(error);
    else this.#askLater();
  }

  /** Asks at once, unless the last carrier brought nothing: an agent that accepts and drops must not keep it busy. */
  protected override onDetached(): void {
    if (this.progress === this.#progressed) {
      this.#askLater();
      return;
    }
    this.#backoff.reset();
    this.#ask();
  }

  /** The next attach says it. */
  protected override onAborted(reason: Error): void {
    this.#lastWord = reason;
  }

  /** Waits for the agent's half to end the carrier: it then knows that the tunnel is complete. */
  protected override onComplete(): void {}

  protected override disappear(): void {
    this.#cancelRetry?.();
    super.disappear();
  }

  #askLater(): void {
    this.#cancelRetry = this.options.clock.after(this.#backoff.next(), () => this.#ask());
  }

  #ask(): void {
    if (this.#asked || this.state === 'gone') return;
    this.#cancelRetry?.();
    this.#asked = { number: ++this.#number, ...this.position };
    this.#attach(this.#asked);
  }

  #disorder(answer: AttachAnswer): Error | undefined {
    const { received, from } = answer;
    const { sent, position } = { sent: this.sendingFrom(received), position: this.position.received };
    const fault =
      this.faultOf(answer) ??
      (received < sent ? `it asks for byte ${received}, and has taken those before ${sent}` : undefined) ??
      (from > position ? `it goes on with byte ${from}, and byte ${position} is next` : undefined);
    return fault === undefined ? undefined : new Error(`the agent's end of the tunnel is in disorder: ${fault}`);
  }
}

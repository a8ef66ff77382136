import { extended } from '@isthmus/runtime';
import type { Established } from '../dial/dial.ts';
import type { DialError, RefusingLimit } from '../dial/errors.ts';
import { ByteMeter } from './byte-meter.ts';
import { type DialLimits, type DialUse, overLimit } from './limits.ts';
import { PerSecond } from './per-second.ts';
import { TokenBucket } from './token-bucket.ts';

/** Counts what one tenant uses of this process, and refuses its dials when a limit is reached. */
export class TenantLimiter implements DialUse {
  /** Dials without an answer, and callers that have yet to dial. */
  pendingDials = 0;
  /** Dials that were counted against the rate. */
  dials = 0;
  readonly refused = new Map<RefusingLimit, number>();
  readonly meter: ByteMeter;
  readonly #tenant: string;
  readonly #limits: () => DialLimits;
  readonly #rate: TokenBucket;
  readonly #perSecond: PerSecond;
  #established = 0;

  /** @param now milliseconds */
  constructor(tenant: string, limits: () => DialLimits, now: () => number) {
    this.#tenant = tenant;
    this.#limits = limits;
    this.#rate = new TokenBucket(now);
    this.#perSecond = new PerSecond(now);
    this.meter = new ByteMeter(tenant, limits, now);
  }

  get tunnels(): number {
    return this.#established;
  }

  get bytesQueued(): number {
    return this.meter.queued;
  }

  get bytes(): number {
    return this.meter.bytes;
  }

  get dialsPerSecond(): number {
    return this.#perSecond.last;
  }

  get bytesPerSecond(): number {
    return this.meter.perSecond.last;
  }

  /** Whether forgetting it changes nothing. */
  get idle(): boolean {
    return (
      this.pendingDials + this.#established === 0 && this.#rate.left(rateOf(this.#limits())) >= this.#limits().burst
    );
  }

  /** Returns why not even a caller that has yet to dial is admitted. */
  noRoom(): DialError | undefined {
    const refusal = this.#full();
    if (refusal?.limit) this.#countRefused(refusal.limit);
    return refusal;
  }

  /** Returns why a dial is refused; undefined for one that is admitted, and that has then used the rate. */
  refusal(): DialError | undefined {
    const refusal = this.#refusal();
    if (!refusal?.limit) {
      this.dials++;
      this.#perSecond.add(1);
    } else this.#countRefused(refusal.limit);
    return refusal;
  }

  #countRefused(limit: RefusingLimit): void {
    this.refused.set(limit, (this.refused.get(limit) ?? 0) + 1);
  }

  #refusal(): DialError | undefined {
    const full = this.#full();
    if (full) return full;
    const limits = this.#limits();
    const tenant = this.#tenant;
    if (this.meter.queued >= limits.bytesQueued) return overLimit(tenant, 'bytesQueued', limits);
    // Last, because it counts the dial.
    const rate = rateOf(limits);
    if (this.#rate.take(1, rate)) return undefined;
    const seconds = (1 - this.#rate.left(rate)) / limits.dialsPerSecond;
    return overLimit(tenant, 'dialsPerSecond', limits, Math.max(1, Math.ceil(seconds)));
  }

  #full(): DialError | undefined {
    const limits = this.#limits();
    if (this.pendingDials >= limits.pendingDials) return overLimit(this.#tenant, 'pendingDials', limits);
    if (this.pendingDials + this.#established >= limits.tunnels) return overLimit(this.#tenant, 'tunnels', limits);
    return undefined;
  }

  /** A dial has become a tunnel, which counts until its destination's stream has closed. */
  carry(established: Established): Established {
    const { stream } = established.end;
    if (!stream.closed) {
      this.#established++;
      stream.once('close', () => this.#established--);
    }
    return extended(established, { meter: this.meter });
  }
}

function rateOf({ dialsPerSecond, burst }: DialLimits) {
  return { perSecond: dialsPerSecond, atOnce: burst };
}

import { BUSY_SHARE, BusyLoop, type BusyLoopOptions } from './busy-loop.ts';
import { TokenBucket } from './token-bucket.ts';

/** Bytes per second that waiting tenants together may always carry. The loop may be busy with something else. */
const LEAST_BYTES_PER_SECOND = 16 * 1024 * 1024;

/** Their largest burst, in seconds of their rate: less than a millisecond of work. */
const BURST_SECONDS = 0.002;

/** A tenant that carries less than this share of the average is quiet. Time is kept for quiet tenants, not for others that flood. */
const QUIET_SHARE = 0.5;

/** A tenant that carries less than this counts as idle, in bytes per second. */
const IDLE_BYTES_PER_SECOND = 1024;

/** A dial counts as much as this many bytes. */
const DIAL_COST_BYTES = 4096;

const NOBODY: ReadonlySet<TenantBytes> = new Set();

/**
 * Keeps time of the event loop for quiet tenants while others move bulk, as `inSpareTime` does while others dial. Tenants that carry more
 * than the average wait while the loop is busy more than half of its time and somebody carries far less than the average. Nothing is
 * dropped: their tunnels pause.
 */
export class SpareBytes {
  readonly #loop: BusyLoop;
  /** Tenants that carried something lately. */
  readonly #active = new Set<TenantBytes>();
  /** What those that wait may carry together, in bytes a second; unset while nobody waits. */
  #rate: number | undefined;

  constructor(options: BusyLoopOptions) {
    this.#loop = new BusyLoop(options);
  }

  /** One tenant's. */
  tenant(): TenantBytes {
    return new TenantBytes(this.#loop.now, (tenant) => this.#begin(tenant));
  }

  #begin(tenant: TenantBytes): void {
    this.#active.add(tenant);
    if (this.#loop.watched) return;
    this.#loop.busy = 0;
    this.#loop.watch((seconds) => this.#tick(seconds));
  }

  #tick(seconds: number): void {
    for (const tenant of this.#active) {
      tenant.rate *= Math.exp(-seconds);
      if (tenant.rate < IDLE_BYTES_PER_SECOND) this.#forget(tenant);
    }
    this.#pace(this.#loud(), seconds);
    if (this.#active.size === 0) this.#loop.stop();
  }

  #forget(tenant: TenantBytes): void {
    this.#active.delete(tenant);
    tenant.perSecond = undefined;
    tenant.active = false;
  }

  /** Those that keep a quiet one waiting, if there is one. */
  #loud(): ReadonlySet<TenantBytes> {
    const all = [...this.#active];
    const average = sumOf(all) / all.length;
    if (!all.some(({ rate }) => rate < QUIET_SHARE * average)) return NOBODY;
    return new Set(all.filter(({ rate }) => rate > average));
  }

  #pace(loud: ReadonlySet<TenantBytes>, seconds: number): void {
    const before = this.#rate;
    const carried = sumOf(loud);
    if (carried <= LEAST_BYTES_PER_SECOND || (this.#rate === undefined && this.#loop.busy <= BUSY_SHARE))
      this.#rate = undefined;
    else {
      const rate = (this.#rate ?? carried) * this.#loop.growth(seconds);
      // A rate that nobody reaches would say nothing about the loop.
      this.#rate = Math.max(LEAST_BYTES_PER_SECOND, Math.min(rate, 2 * carried));
    }
    if (this.#rate === undefined && before === undefined) return;
    const each = this.#rate === undefined ? undefined : this.#rate / loud.size;
    for (const tenant of this.#active) tenant.perSecond = loud.has(tenant) ? each : undefined;
  }
}

function sumOf(tenants: Iterable<TenantBytes>): number {
  let sum = 0;
  for (const { rate } of tenants) sum += rate;
  return sum;
}

/** What one tenant carries in this process. */
export class TenantBytes {
  /** Bytes a second, over about a second. */
  rate = 0;
  /** What it may carry, in bytes a second; unset: no bound. */
  perSecond: number | undefined;
  active = false;
  readonly #bucket: TokenBucket;
  readonly #begin: (tenant: TenantBytes) => void;

  constructor(now: () => number, begin: (tenant: TenantBytes) => void) {
    this.#bucket = new TokenBucket(now);
    this.#begin = begin;
  }

  /** A tunnel begins. */
  dial(): void {
    this.#count(DIAL_COST_BYTES);
  }

  /** Counts bytes that were read. @returns whether more may be read now */
  spend(bytes: number): boolean {
    this.#count(bytes);
    const { perSecond } = this;
    return perSecond === undefined || this.#bucket.charge(bytes, rateOf(perSecond)) > 0;
  }

  /** How many bytes may be read now. */
  get left(): number {
    const { perSecond } = this;
    return perSecond === undefined ? Number.POSITIVE_INFINITY : this.#bucket.left(rateOf(perSecond));
  }

  #count(bytes: number): void {
    this.rate += bytes;
    if (this.active) return;
    this.active = true;
    this.#begin(this);
  }
}

function rateOf(perSecond: number) {
  return { perSecond, atOnce: perSecond * BURST_SECONDS };
}

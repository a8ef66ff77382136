/** What comes to a half, by position: how far the carrier has brought it, and the socket here has taken it. */
export class Incoming {
  /** Bytes that came. */
  received = 0;
  /** Bytes that the socket here has taken. */
  taken = 0;
  /** How much comes in all, once that is known: the other side's end. */
  final: number | undefined;
  /** Whether the socket here has seen the end. */
  ended = false;
  /** What the other half was told that is taken. */
  told = 0;
  /** The position that the other half has last asked about. */
  asked = 0;
  /** The position of the carrier's next byte. Lower than what was received if the carrier began before. */
  #carrierAt = 0;
  /** The position of the first byte that the carrier brought anew: those before count as read on another one. */
  #freshFrom = 0;

  /** What was taken, and one more for the end. */
  get takenWithEnd(): number {
    return this.done ? this.taken + 1 : this.taken;
  }

  /** Whether the socket here has taken everything, and seen the end. */
  get done(): boolean {
    return this.ended && this.taken === this.final;
  }

  /** Whether the other half does not know yet what was taken. */
  get untold(): boolean {
    return this.told < this.takenWithEnd;
  }

  /** Whether the other half waits to hear what was taken. */
  get isAsked(): boolean {
    return this.asked > this.told && this.taken >= this.asked;
  }

  /** Another carrier brings the rest, beginning with the byte at this position. */
  goOn(at: number): void {
    this.#carrierAt = at;
    this.#freshFrom = this.received;
  }

  /** Bytes came on the carrier. @returns how many of them had come before, on another one */
  arrive(length: number): number {
    const again = Math.min(Math.max(this.received - this.#carrierAt, 0), length);
    this.#carrierAt += length;
    this.received += length - again;
    return again;
  }

  /** @returns how many of these bytes the carrier brought */
  take(bytes: number): number {
    const fresh = this.taken + bytes - Math.max(this.taken, this.#freshFrom);
    this.taken += bytes;
    return Math.max(fresh, 0);
  }

  /** Returns why the other half cannot end there. */
  faultOf(final: number | undefined): string | undefined {
    const fits = final === undefined || (final >= this.received && (this.final ?? final) === final);
    return fits ? undefined : `it cannot end at byte ${final}`;
  }
}

/** The bytes that come to a half, as positions: how far carriers have brought them, and how far the socket here has taken them. */
export class Incoming {
  /** Bytes that have arrived. */
  received = 0;
  /** Bytes that the socket here has taken. */
  taken = 0;
  /** The position of the other side's end, once it is known. */
  final: number | undefined;
  /** Whether the socket here has seen the end. */
  ended = false;
  /** The last position of taken bytes that the other half was told. */
  told = 0;
  /** The last position that the other half has asked about (`Mark.ask`). */
  asked = 0;
  /** The position of the carrier's next byte. Lower than `received` while the carrier repeats bytes of an earlier one. */
  #carrierAt = 0;
  /** The position of the first byte that only the present carrier brought. Those before it counted as read on earlier carriers. */
  #freshFrom = 0;

  /** Bytes of earlier carriers that the socket here has not taken. */
  get ofEarlier(): number {
    return Math.max(this.#freshFrom - this.taken, 0);
  }

  /** What the socket has taken, and one more once it has seen the end. */
  get takenWithEnd(): number {
    return this.done ? this.taken + 1 : this.taken;
  }

  /** Whether the socket here has taken everything, and seen the end. */
  get done(): boolean {
    return this.ended && this.taken === this.final;
  }

  /** How much more was taken than the other half knows. */
  get untold(): number {
    return this.takenWithEnd - this.told;
  }

  /** Whether the other half has asked, and can now be told. */
  get isAsked(): boolean {
    return this.asked > this.told && this.taken >= this.asked;
  }

  /** A new carrier brings the rest, beginning with the byte at this position. */
  goOn(at: number): void {
    this.#carrierAt = at;
    this.#freshFrom = this.received;
  }

  /** Returns how many of so many bytes that the carrier brings have already arrived on an earlier one. */
  again(length: number): number {
    return Math.min(Math.max(this.received - this.#carrierAt, 0), length);
  }

  /** Counts bytes of the carrier. @returns how many of them had already arrived on an earlier one */
  arrive(length: number): number {
    const again = this.again(length);
    this.#carrierAt += length;
    this.received += length - again;
    return again;
  }

  /** Counts taken bytes. @returns how many of them the present carrier brought */
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

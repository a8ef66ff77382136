const NOTHING = Buffer.alloc(0);

/**
 * Bytes that come in pieces and are wanted whole. Room doubles as they grow, so that each is copied twice at most on average,
 * however small the pieces: putting all together again for each piece would cost their square. Who adds looks at the length.
 */
export class Pieces {
  #room: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** @returns all that came so far; it holds until more is added. A first piece is not copied. */
  add(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (this.#length === 0) this.#room = piece;
    else {
      // Also where the room is the first piece, which is the socket's.
      if (length > this.#room.length) this.#grow(length);
      this.#room.set(piece, this.#length);
    }
    this.#length = length;
    return this.#room.subarray(0, length);
  }

  /** @returns all that came, and holds nothing of it any more */
  take(): Buffer {
    const all = this.#room.subarray(0, this.#length);
    this.#room = NOTHING;
    this.#length = 0;
    return all;
  }

  #grow(length: number): void {
    const room = Buffer.allocUnsafeSlow(2 * length);
    room.set(this.#room.subarray(0, this.#length));
    this.#room = room;
  }
}

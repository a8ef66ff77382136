const NOTHING = Buffer.alloc(0);

/**
 * Bytes that arrive in pieces and are needed as a whole. The room doubles as they grow, so each byte is copied at most twice on
 * average, however small the pieces are: joining everything again for each piece would cost the square. The caller checks the length.
 */
export class Pieces {
  #room: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Returns all bytes so far. The result is valid until more is added. A first piece is not copied. */
  add(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (this.#length === 0) this.#room = piece;
    else {
      // Also if the room is the first piece, which belongs to the socket.
      if (length > this.#room.length) this.#grow(length);
      this.#room.set(piece, this.#length);
    }
    this.#length = length;
    return this.#room.subarray(0, length);
  }

  /** Returns all bytes and keeps none of them. */
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

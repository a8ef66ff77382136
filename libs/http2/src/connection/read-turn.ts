/**
 * Bytes that connections read in a turn of the event loop, all together, before those with much to read rest until the next. Node reads up
 * to 2 MiB of one socket in a turn: of TLS with bulk in it 5 ms of work, in which nobody else is read.
 */
const BUDGET = 512 * 1024;

/** What each may read in a turn however much the others have read, in bytes: one read of a socket. */
const LEAST = 64 * 1024;

/** What connections have read in this turn of the event loop. */
export class ReadTurn {
  /** Counts turns. */
  #turn = 0;
  #bytes = 0;
  #begun = false;
  readonly #later: (next: () => void) => void;

  constructor(later: (next: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Counts bytes that one connection read. @returns whether it should rest until the next turn */
  read(reader: TurnReader, bytes: number): boolean {
    if (!this.#begun) this.#begin();
    if (reader.turn !== this.#turn) {
      reader.turn = this.#turn;
      reader.bytes = 0;
    }
    reader.bytes += bytes;
    this.#bytes += bytes;
    return this.#bytes >= BUDGET && reader.bytes > LEAST;
  }

  #begin(): void {
    this.#begun = true;
    this.#later(() => {
      this.#begun = false;
      this.#turn++;
      this.#bytes = 0;
    });
  }
}

/** What one connection has read. `ReadTurn` alone writes it. */
export class TurnReader {
  /** The last turn in which it read. */
  turn = -1;
  /** Of that turn. */
  bytes = 0;
}

/** Shared by this process. */
export const readTurn = new ReadTurn();

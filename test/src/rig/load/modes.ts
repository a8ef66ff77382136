/**
 * The first byte of a connection tells the destination what to do. For source, file, sink, stall and exchange it is followed by an id of four
 * bytes, under which the destination counts, and by a number of four bytes: how many KiB a file has, how many frames each end sends, or a limit
 * of a source or sink in kB/s; 0 for none.
 */
export const MODES = {
  /** Sends back what it receives. */
  echo: 0x65,
  /** Sends the pattern without end. */
  source: 0x73,
  /** Sends so much of the pattern, and ends. */
  file: 0x66,
  /** Reads the pattern and compares it. */
  sink: 0x6b,
  /** Does not read again until released. */
  stall: 0x7a,
  /** Sends the pattern in frames, as its caller does, and compares what it reads: `exchange.ts`. */
  exchange: 0x78,
  /** The load's own questions, outside any plane. */
  control: 0x71,
} as const;

export const HEADER_BYTES = 9;

export function header(mode: 'source' | 'file' | 'sink' | 'stall' | 'exchange', id: number, number = 0): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  bytes[0] = MODES[mode];
  bytes.writeUInt32BE(id, 1);
  bytes.writeUInt32BE(number, 5);
  return bytes;
}

/** Asks what the destination has counted for an id, and perhaps to end its source, or to let all that stalls read again. A line of JSON. */
export interface Question {
  readonly id?: number;
  readonly act?: 'stop' | 'release';
}

/** The answer. */
export interface Counted {
  readonly bytes: number;
  readonly corrupt: boolean;
}

import type { Duplex } from 'node:stream';
import { clock } from '../clock.ts';
import { header } from './modes.ts';
import { Position } from './pattern.ts';

/** Four frames a second make 20 KB/s. */
export const FRAME_EVERY = 250;
export const FRAME_BYTES = 5000;
/** A frame that comes later than this is a pause, in milliseconds. */
const LATE = 100;
/** Tunnels, and their two directions, begin so far apart in the pattern: foreign bytes are wrong ones. */
export const APART = 977;

export interface ExchangeSettings {
  readonly tunnel: number;
  /** How many frames each end sends; 0 for no end. */
  readonly frames: number;
  readonly end: 'caller' | 'destination';
}

/** What an end tells. */
export interface Ends {
  wrong(text: string): unknown;
  /** Bytes came so many milliseconds late. */
  paused(ms: number): unknown;
  /** The tunnel is over. @param cut how it ended before all frames had come */
  over(cut?: string): unknown;
}

/** One end of a long tunnel: sends a frame at a time, and compares every byte that arrives. */
export class Exchange {
  /** When the last bytes arrived, by the shared clock. */
  heard = clock();
  /** Whether any have arrived. */
  carries = false;
  readonly #stream: Duplex;
  readonly #settings: ExchangeSettings;
  readonly #tells: Ends;
  readonly #sends: Position;
  readonly #takes: Position;
  readonly #timer = setInterval(() => this.#tick(), FRAME_EVERY);
  /** Frames that this end has yet to send, and bytes that it has yet to get. */
  #left: number;
  #missing: number;
  #over = false;

  constructor(stream: Duplex, settings: ExchangeSettings, tells: Ends) {
    const { tunnel, end, frames } = settings;
    const own = end === 'caller' ? 0 : 1;
    this.#stream = stream;
    this.#settings = settings;
    this.#tells = tells;
    this.#sends = new Position((2 * tunnel + own) * APART);
    this.#takes = new Position((2 * tunnel + 1 - own) * APART);
    this.#left = frames || Number.POSITIVE_INFINITY;
    this.#missing = this.#left * FRAME_BYTES;
    stream.on('data', (chunk: Buffer) => this.take(chunk));
    stream.once('end', () => this.#cut('ended'));
    stream.once('error', (error) => this.#cut(error.message));
    stream.once('close', () => this.#cut('closed'));
    if (end === 'caller') stream.write(header('exchange', tunnel, frames));
    stream.resume();
  }

  /** Gives the tunnel up. */
  destroy(): void {
    this.#end();
    this.#stream.destroy();
  }

  take(chunk: Buffer): void {
    if (this.#over || chunk.length === 0) return;
    const before = this.heard;
    this.heard = clock();
    this.carries = true;
    const late = this.heard - before - FRAME_EVERY;
    if (late >= LATE) this.#tells.paused(late);
    this.#missing -= chunk.length;
    if (this.#missing < 0 || !this.#takes.matches(chunk)) {
      const { tunnel, end } = this.#settings;
      this.#tells.wrong(`tunnel ${tunnel}: wrong bytes reached the ${end}`);
      this.destroy();
    } else if (this.#missing === 0) {
      while (this.#left > 0) this.#send();
      this.#stream.end();
      this.#end();
    }
  }

  #tick(): void {
    // The destination's last frame answers the caller's, so that an end before it is a cut.
    const kept = this.#settings.end === 'caller' ? 0 : 1;
    if (this.#left > kept && !this.#stream.writableNeedDrain) this.#send();
  }

  #send(): void {
    this.#left--;
    this.#stream.write(this.#sends.next(FRAME_BYTES));
  }

  #cut(how: string): void {
    this.#end(how);
    this.#stream.destroy();
  }

  #end(cut?: string): void {
    if (this.#over) return;
    this.#over = true;
    clearInterval(this.#timer);
    this.#tells.over(cut);
  }
}

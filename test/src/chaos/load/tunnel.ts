import type { Duplex } from 'node:stream';
import { clock } from '../../rig/clock.ts';
import { FRAME_EVERY, FrameReader, frame } from './frames.ts';

/** A frame that comes later than this is a pause, in milliseconds. */
const LATE = 100;

export interface TunnelEnds {
  finished(): void;
  cut(how: string): void;
  paused(ms: number): void;
  wrong(text: string): void;
}

/** The caller's end of a long tunnel: sends a frame each tick, and compares every frame that arrives. */
export class LongTunnel {
  /** When the last bytes arrived, by the shared clock. */
  heard = clock();
  /** Whether any have arrived. */
  carries = false;
  readonly #stream: Duplex;
  readonly #index: number;
  readonly #finishAt: number;
  readonly #reader: FrameReader;
  readonly #ends: TunnelEnds;
  #sent = 0;
  /** Whether the last frame was sent. The destination answers it with its own last frame. */
  #lastSent = false;
  #over = false;

  constructor(index: number, stream: Duplex, life: number, ends: TunnelEnds) {
    this.#index = index;
    this.#stream = stream;
    this.#finishAt = clock() + life;
    this.#reader = new FrameReader(index, 'down');
    this.#ends = ends;
    stream.on('data', (chunk: Buffer) => this.#take(chunk)).resume();
    stream.once('end', () => this.#end('ended'));
    stream.once('error', (error) => this.#end(error.message));
    stream.once('close', () => this.#end('closed'));
  }

  tick(now: number): void {
    if (this.#over || this.#lastSent || this.#stream.writableNeedDrain) return;
    this.#lastSent = now >= this.#finishAt;
    this.#stream.write(frame(this.#index, 'up', this.#sent++, this.#lastSent));
  }

  /** Gives the tunnel up. */
  destroy(): void {
    this.#over = true;
    this.#stream.destroy();
  }

  #take(chunk: Buffer): void {
    if (this.#over) return;
    const before = this.heard;
    this.heard = clock();
    this.carries = true;
    const late = this.heard - before - FRAME_EVERY;
    if (late >= LATE) this.#ends.paused(late);
    const problem = this.#reader.take(chunk);
    if (problem) this.#ends.wrong(problem);
    if (!problem && !this.#reader.finished) return;
    this.#over = true;
    this.#stream.end();
    this.#ends.finished();
  }

  #end(how: string): void {
    if (!this.#over) {
      this.#over = true;
      this.#ends.cut(how);
    }
    this.#stream.destroy();
  }
}

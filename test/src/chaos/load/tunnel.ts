import type { Duplex } from 'node:stream';
import { clock } from '../clock.ts';
import { FrameReader, frame } from './frames.ts';

export interface TunnelEnds {
  finished(): void;
  cut(how: string): void;
  wrong(text: string): void;
}

/** The caller's end of a long tunnel: sends a frame each tick, and compares every frame that arrives. */
export class LongTunnel {
  /** When the last bytes arrived, by the shared clock. */
  heard = clock();
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
    this.heard = clock();
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

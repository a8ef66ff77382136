import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import type { Control } from './control.ts';
import { header } from './modes.ts';
import { Position } from './pattern.ts';
import { close } from './tunnels.ts';

/** How many bytes an upload writes at a time. */
const CHUNK = 32 * 1024;

/** How long data in flight may take to arrive after a flow stops, in milliseconds. */
const DRAIN_WITHIN = 2000;

/** Endless bytes through one tunnel, in one direction. */
export class Flow {
  readonly tunnel: Duplex;
  readonly id: number;
  /** Bytes read, or written, here. */
  bytes = 0;
  corrupt = false;
  ended = false;
  #stopping = false;

  constructor(tunnel: Duplex, id: number) {
    this.tunnel = tunnel;
    this.id = id;
    const end = () => {
      this.ended = true;
    };
    tunnel.once('end', end).once('close', end);
  }

  /** Reads the destination's source, limited to this many kB/s unless 0. */
  download(kbPerSecond: number): void {
    const at = new Position();
    this.tunnel.on('data', (chunk: Buffer) => {
      this.bytes += chunk.length;
      if (!at.matches(chunk)) this.corrupt = true;
    });
    this.tunnel.write(header('source', this.id, kbPerSecond));
    this.tunnel.resume();
  }

  /** Writes to the destination's sink, or to a destination that never reads. */
  upload(mode: 'sink' | 'stall'): void {
    const at = new Position();
    const write = () => {
      for (let room = true; room; ) {
        if (this.#stopping || this.tunnel.destroyed) return;
        room = this.tunnel.write(at.next(CHUNK));
        this.bytes += CHUNK;
      }
      this.tunnel.once('drain', write);
    };
    this.tunnel.resume();
    this.tunnel.write(header(mode, this.id), write);
  }

  /** Finishes cleanly: the sender stops, data in flight arrives, the tunnel closes. */
  async finish(control: Control): Promise<void> {
    this.#stopping = true;
    await control.stop(this.id);
    const late = performance.now() + DRAIN_WITHIN;
    // A source ends its tunnel itself.
    while (!this.ended && this.#reads && performance.now() < late) await pause(10);
    await close(this.tunnel);
  }

  get #reads(): boolean {
    return this.tunnel.listenerCount('data') > 0;
  }
}

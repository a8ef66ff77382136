import { once } from 'node:events';
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
  readonly #gone: Promise<void>;

  constructor(tunnel: Duplex, id: number) {
    this.tunnel = tunnel;
    this.id = id;
    this.#gone = new Promise((resolve) => {
      const end = () => {
        this.ended = true;
        resolve();
      };
      tunnel.once('end', end).once('close', end);
    });
  }

  /** Reads the destination's source, limited to this many kB/s unless 0. */
  download(kbPerSecond: number): void {
    this.#read(header('source', this.id, kbPerSecond));
  }

  /** Reads a file of the destination. Resolves once the tunnel has ended. @returns whether all of it came, and came right */
  async fetch(kib: number): Promise<boolean> {
    this.#read(header('file', this.id, kib));
    await this.#gone;
    await close(this.tunnel);
    return this.bytes === kib * 1024 && !this.corrupt;
  }

  /** Writes so much to the destination, which takes at most this many kB/s unless 0, or does not read. Resolves once all of it has left. */
  async send(kib: number, kbPerSecond = 0, mode: 'sink' | 'stall' = 'sink'): Promise<void> {
    const at = new Position();
    this.tunnel.resume();
    this.tunnel.write(header(mode, this.id, kbPerSecond));
    for (const whole = kib * 1024; this.bytes < whole; ) {
      const piece = at.next(Math.min(CHUNK, whole - this.bytes));
      this.bytes += piece.length;
      if (this.tunnel.destroyed) return;
      if (!this.tunnel.write(piece)) await Promise.race([once(this.tunnel, 'drain'), this.#gone]);
    }
  }

  #read(asked: Buffer): void {
    const at = new Position();
    this.tunnel.on('data', (chunk: Buffer) => {
      this.bytes += chunk.length;
      if (!at.matches(chunk)) this.corrupt = true;
    });
    this.tunnel.write(asked);
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
    await control.ask({ id: this.id, act: 'stop' });
    const late = performance.now() + DRAIN_WITHIN;
    // A source ends its tunnel itself.
    while (!this.ended && this.#reads && performance.now() < late) await pause(10);
    await close(this.tunnel);
  }

  get #reads(): boolean {
    return this.tunnel.listenerCount('data') > 0;
  }
}

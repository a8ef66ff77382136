import type { Socket } from 'node:net';
import { remoteOf } from './addresses.ts';
import { sourceOf } from './strangers.ts';

export interface AdmittedLimits {
  /** Connections, in all. */
  readonly most: number;
  /** Of those, from one source address. */
  readonly mostOfSource: number;
}

/** The connections of a port for operators and machines that watch, limited in all and by source. Further ones are refused. */
export class Admitted {
  readonly #limits: AdmittedLimits;
  readonly #refused: (remote: string, error: Error) => void;
  readonly #sources = new Map<string, number>();
  #size = 0;

  constructor(limits: AdmittedLimits, refused: (remote: string, error: Error) => void) {
    this.#limits = limits;
    this.#refused = refused;
  }

  /** Returns false if it was refused and closed. */
  enter(socket: Socket): boolean {
    // If it has closed already, no close event may follow.
    if (socket.destroyed) return true;
    const source = sourceOf(socket.remoteAddress ?? '');
    const full = this.#full(source);
    if (full) {
      this.#refused(remoteOf(socket), full);
      socket.destroy();
      return false;
    }
    this.#count(source, 1);
    socket.once('close', () => this.#count(source, -1));
    return true;
  }

  #full(source: string): Error | undefined {
    const { most, mostOfSource } = this.#limits;
    const own = this.#sources.get(source) ?? 0;
    if (own >= mostOfSource) return new Error(`${own} connections from ${source} are open: close some of them`);
    if (this.#size >= most) return new Error(`${this.#size} connections are open: close some of them`);
    return undefined;
  }

  #count(source: string, change: number): void {
    this.#size += change;
    const own = (this.#sources.get(source) ?? 0) + change;
    if (own > 0) this.#sources.set(source, own);
    else this.#sources.delete(source);
  }
}

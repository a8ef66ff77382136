import type { Socket } from 'node:net';
import { remoteOf } from './addresses.ts';
import { BySource } from './by-source.ts';
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
  readonly #sources = new BySource<Socket>();

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
    this.#sources.add(source, socket);
    socket.once('close', () => this.#sources.delete(source, socket));
    return true;
  }

  #full(source: string): Error | undefined {
    const { most, mostOfSource } = this.#limits;
    const own = this.#sources.of(source)?.size ?? 0;
    const { size } = this.#sources;
    if (own >= mostOfSource) return new Error(`${own} connections from ${source} are open: close some of them`);
    if (size >= most) return new Error(`${size} connections are open: close some of them`);
    return undefined;
  }
}

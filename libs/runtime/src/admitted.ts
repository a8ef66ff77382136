import type { Socket } from 'node:net';
import { remoteOf } from './addresses.ts';
import { BySource } from './by-source.ts';
import { SharedBudget } from './shared-budget.ts';
import { sourceOf } from './strangers.ts';

export interface AdmittedLimits {
  /** Connections, in all. */
  readonly most: number;
  /** Of those, from one source address. */
  readonly mostOfSource: number;
}

/**
 * The connections of a port for operators and machines that watch, limited in all, by source and by tenant: one tenant's operators get no
 * more than they leave to others. Further ones are refused.
 */
export class Admitted {
  readonly #limits: AdmittedLimits;
  readonly #refused: (remote: string, error: Error) => void;
  readonly #sources = new BySource<Socket>();
  readonly #places: SharedBudget;

  constructor(limits: AdmittedLimits, refused: (remote: string, error: Error) => void) {
    this.#limits = limits;
    this.#places = new SharedBudget(limits.most, true);
    this.#refused = refused;
  }

  /** Returns false if it was refused and closed. @param tenant whose operator it is; unset: the plane's */
  enter(socket: Socket, tenant?: string): boolean {
    // If it has closed already, no close event may follow.
    if (socket.destroyed) return true;
    const source = sourceOf(socket.remoteAddress ?? '');
    const full = this.#full(source, tenant);
    if (full) {
      this.#refused(remoteOf(socket), full);
      socket.destroy();
      return false;
    }
    this.#sources.add(source, socket);
    socket.once('close', () => {
      this.#sources.delete(source, socket);
      this.#places.give(1, tenant);
    });
    return true;
  }

  #full(source: string, tenant: string | undefined): Error | undefined {
    const { mostOfSource } = this.#limits;
    const own = this.#sources.of(source)?.size ?? 0;
    if (own >= mostOfSource) return new Error(`${own} connections from ${source} are open: close some of them`);
    if (this.#places.take(1, tenant)) return undefined;
    const { size } = this.#sources;
    const whose = tenant === undefined ? '' : `, and those of tenant ${tenant} leave too few to others`;
    return new Error(`${size} connections are open${whose}: close some of them`);
  }
}

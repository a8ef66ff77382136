import { RandomSet } from '@isthmus/runtime';
import type { PlaneEvents, Role, TunnelInfo } from '../events/events.ts';
import { Tunnel } from './tunnel.ts';

/** The tunnels that run in this process, tracked through its events. */
export class TunnelTable {
  readonly #tunnels = new RandomSet<TunnelInfo>();
  readonly #idle: (() => void)[] = [];

  constructor(events: PlaneEvents) {
    events.on('tunnel:open', (tunnel) => this.#tunnels.add(tunnel));
    events.on('tunnel:close', (tunnel) => {
      this.#tunnels.delete(tunnel);
      if (this.#tunnels.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    });
  }

  get size(): number {
    return this.#tunnels.size;
  }

  [Symbol.iterator](): Iterator<TunnelInfo> {
    return this.#tunnels[Symbol.iterator]();
  }

  /** Aborts the tunnel that a dial opened, in each role that this process has. @returns how many were found */
  abort(dialId: string, reason: Error): number {
    const tunnels = [...this.#tunnels].filter((tunnel) => tunnel.dial.id === dialId);
    for (const tunnel of tunnels) if (tunnel instanceof Tunnel) tunnel.abort(reason);
    return tunnels.length;
  }

  /** Ends every tunnel of a role. */
  abortAll(role: Role, reason: Error): void {
    this.abortEach((tunnel) => tunnel.role === role, reason);
  }

  /** Ends the tunnels that `which` selects, also those that could go on through another session. */
  abortEach(which: (tunnel: TunnelInfo) => boolean, reason: Error): void {
    for (const tunnel of [...this.#tunnels]) if (tunnel instanceof Tunnel && which(tunnel)) tunnel.abort(reason);
  }

  /** Resolves as soon as no tunnel runs. */
  idle(): Promise<void> {
    if (this.#tunnels.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }
}

import { RandomSet } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';
import type { PlaneEvents, TunnelInfo, TunnelRole } from './events.ts';
import { Tunnel } from './tunnel.ts';

/** The tunnels that run in this process, tracked through its events. */
export class TunnelTable {
  readonly #events: PlaneEvents;
  readonly #tunnels = new RandomSet<TunnelInfo>();
  readonly #idle: (() => void)[] = [];

  constructor(events: PlaneEvents) {
    this.#events = events;
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

  /** Ends the tunnels that `which` selects, also those that could go on through another session. */
  abortEach(which: (tunnel: TunnelInfo) => boolean, reason: Error): void {
    for (const tunnel of [...this.#tunnels]) if (tunnel instanceof Tunnel && which(tunnel)) tunnel.abort(reason);
  }

  /**
   * Ends in order, until it is disposed of, each tunnel of a role that has been idle for `idleMs`. Call it when a drain begins: the
   * connections that callers keep for their next requests would otherwise hold a process that drains until its time is over.
   * @param idleMs in milliseconds. 0: no tunnel is ended
   */
  endIdle(role: TunnelRole, idleMs: number): Disposable {
    const sweep = () => {
      for (const tunnel of [...this.#tunnels]) {
        if (!(tunnel instanceof Tunnel) || tunnel.role !== role || tunnel.idleMs < idleMs) continue;
        tunnel.endIdle();
        this.#events.emit('tunnel:idle', tunnel);
      }
    };
    const timer = idleMs > 0 ? setInterval(sweep, Math.min(TUNNEL.idleCheckMs, idleMs)).unref() : undefined;
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  /** Resolves as soon as no tunnel runs. */
  idle(): Promise<void> {
    if (this.#tunnels.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }
}

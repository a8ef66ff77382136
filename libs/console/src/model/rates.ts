import type { Tunnel } from '../rpc/messages.ts';

/** Bytes a second, each way. */
export interface Rate {
  readonly up: number;
  readonly down: number;
}

interface Seen extends Rate {
  readonly at: number;
}

/** How fast bytes move through tunnels, from one list of them to the next. */
export class TunnelRates {
  #seen = new Map<string, Seen>();
  #rates = new Map<string, Rate>();

  /** @param now milliseconds */
  take(tunnels: readonly Tunnel[], now: number): void {
    const seen = new Map<string, Seen>();
    const rates = new Map<string, Rate>();
    for (const tunnel of tunnels) {
      const { bytesUp: up, bytesDown: down } = tunnel;
      const key = keyOf(tunnel);
      const before = this.#seen.get(key);
      if (before && now > before.at) {
        const seconds = (now - before.at) / 1000;
        rates.set(key, { up: Math.max(0, up - before.up) / seconds, down: Math.max(0, down - before.down) / seconds });
      }
      seen.set(key, { up, down, at: now });
    }
    [this.#seen, this.#rates] = [seen, rates];
  }

  /** Undefined for a tunnel that was listed only once. */
  of(tunnel: Tunnel): Rate | undefined {
    return this.#rates.get(keyOf(tunnel));
  }
}

function keyOf({ dialId, role }: Tunnel): string {
  return `${role}\0${dialId}`;
}

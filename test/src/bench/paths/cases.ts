import type { Direction } from '../../rig/network.ts';
import type { AnpBinaries } from '../families.ts';

export interface PathSettings {
  readonly cases: readonly Case[];
  readonly windowMs: number;
  readonly anp?: AnpBinaries;
  /** TCP's congestion control; default: the machine's. */
  readonly tcp?: string;
}

/** A path, and what is carried over it. */
export interface Case {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  readonly rttMs: number;
  readonly direction: Direction;
  /** Downloads as fast as they go. */
  readonly downloads: number;
  /** Tunnels beside them that send 64 bytes there and back, while a dial is made each second. */
  readonly small: number;
}

/** 40 Mbit/s, and a tenth of a second of queue. */
const WIDE = { bytesPerSecond: 5e6, queueBytes: 500_000 };

const LONG: readonly Case[] = [50, 200, 300, 600, 2100].flatMap((rttMs) =>
  [0, 1].flatMap((percent) =>
    [1, 8].map((downloads) => ({
      name: `${rttMs}ms-${percent}%-x${downloads}`,
      title: `${rttMs} ms, ${percent} % loss, ×${downloads}`,
      rttMs,
      direction: { ...WIDE, delayMs: rttMs / 2, loss: percent / 100 },
      downloads,
      small: 0,
    })),
  ),
);

const THIN: readonly Case[] = [1, 10].flatMap((megabits) =>
  [50, 300].map((rttMs) => ({
    name: `${megabits}mbit-${rttMs}ms`,
    title: `${megabits} Mbit/s, ${rttMs} ms, 100 kB of queue: 6 downloads, 6 small`,
    rttMs,
    direction: { delayMs: rttMs / 2, bytesPerSecond: megabits * 125_000, queueBytes: 100_000 },
    downloads: 6,
    small: 6,
  })),
);

export const CASES: readonly Case[] = [...LONG, ...THIN];

// Paths that are long, lossy or thin.
import { execFileSync } from 'node:child_process';
import { listening } from '../rig/child.ts';
import { type Direction, namespace, pathTo } from '../rig/network.ts';
import { type AnpBinaries, type Family, inOne } from './families.ts';
import type { Line } from './lines.ts';

/** 40 Mbit/s, and a tenth of a second of queue. */
const WIDE = { bytesPerSecond: 5e6, queueBytes: 500_000 };

const RATE = { kb_per_s: 'kB/s' };
const SMALL = {
  p50_ms: 'p50 ms',
  most_ms: 'ms at most',
  idle_ms: 'p50 ms idle',
  dial_ms: 'ms of a dial at most',
  lost: 'lost',
};

function over(name: string, title: string, downloads: number, small: number, direction: Direction): Line {
  const shows = small > 0 ? { ...RATE, ...SMALL } : RATE;
  const how = { conns: downloads, rate: 0, on: ['path'], fresh: true, once: false } as const;
  return { name, title, work: 'path', path: { direction, small }, shows, ...how };
}

const LONG = [50, 200, 300, 600, 2100].flatMap((ms) =>
  [0, 1].flatMap((percent) =>
    [1, 8].map((downloads) => {
      const direction = { ...WIDE, delayMs: ms / 2, loss: percent / 100 };
      return over(
        `${ms}ms-${percent}%-x${downloads}`,
        `${ms} ms, ${percent} % loss, ×${downloads}`,
        downloads,
        0,
        direction,
      );
    }),
  ),
);

const THIN = [1, 10].flatMap((megabits) =>
  [50, 300].map((ms) => {
    const direction = { delayMs: ms / 2, bytesPerSecond: megabits * 125_000, queueBytes: 100_000 };
    const title = `${megabits} Mbit/s, ${ms} ms, 100 kB of queue: 6 downloads, 6 small`;
    return over(`${megabits}mbit-${ms}ms`, title, 6, 6, direction);
  }),
);

/** Each is a path, and what is carried over it. */
export const PATHS: readonly Line[] = [...LONG, ...THIN];

/**
 * The path of a line, in a namespace of its own, to an agent or straight to the destination.
 * @param control TCP's congestion control; default: the machine's
 */
export function overPath(to: 'destination' | 'agent', control?: string, anp?: AnpBinaries): Family {
  return async (scope, _, { path: { direction } = { direction: {} } }) => {
    const { name, command } = await namespace(scope, []);
    for (const inside of [[], command]) setTcp(inside, control);
    const { outside, inside, set } = await pathTo(scope, { name });
    await set({ up: direction, down: direction });
    const host = to === 'agent' ? '127.0.0.1' : inside;
    const there = { argument: host, command: [...command, process.execPath] };
    const { port } = await listening(scope, 'rig/load/destination.ts', there);
    const destination = { port, host };
    if (to === 'destination') return { groups: {}, destination };
    return { ...(await inOne({ far: { command, outside }, anp, protocol: 'connect' })(scope, port)), destination };
  };
}

/** What one run has learnt about a path is nothing to the next. */
function setTcp(inside: readonly string[], control?: string): void {
  const set = control === undefined ? [] : [`net.ipv4.tcp_congestion_control=${control}`];
  const [command = '', ...args] = [...inside, 'sysctl', '-qw', 'net.ipv4.tcp_no_metrics_save=1', ...set];
  execFileSync(command, args);
}

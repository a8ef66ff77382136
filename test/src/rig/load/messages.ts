import type { Ways } from '../../harness/index.ts';
import type { Protocol } from '../dial.ts';

/** A way to the destination: straight, through a port that forwards to it, perhaps by the name in a ClientHello, or through a plane's door. */
export type Front =
  | { readonly kind: 'direct'; readonly host?: string }
  | { readonly kind: 'forward'; readonly port: number; readonly named?: true }
  | { readonly kind: 'door'; readonly door: Ways; readonly protocol: Protocol };

export type WorkName =
  | 'bulk'
  | 'upload'
  | 'whole'
  | 'ping'
  | 'ping-under-bulk'
  | 'dials'
  | 'idle'
  | 'stall'
  | 'stall-up';

/** What a tenant that floods does: dials, downloads, tunnels that nobody reads, tunnels that carry nothing, or all of it at once. */
export const FLOODS = ['dials', 'downloads', 'stalled', 'idle', 'all'] as const;
export type FloodKind = (typeof FLOODS)[number];

/** What one caller has at once: loops of dials; downloads; tunnels that it or (blocked) the destination does not read; tunnels that carry nothing. */
export type Held = Readonly<Partial<Record<'idle' | 'stalled' | 'blocked' | 'downloads' | 'dials', number>>>;

const HELD: Held = { idle: 5000, stalled: 400, downloads: 32, dials: 256 };

/** @param most of each */
export function heldBy(kind: FloodKind, most: number): Held {
  const wanted = Object.entries(HELD).filter(([name]) => kind === 'all' || kind === name);
  return Object.fromEntries(wanted.map(([name, count]) => [name, Math.min(count, most)]));
}

/** The first message to a process of a load. */
export type Load =
  | ({ readonly load: 'work' } & Settings)
  | ({ readonly load: 'path' } & PathSettings)
  | ({ readonly load: 'flood' } & FloodSettings)
  | ({ readonly load: 'calls' } & Calls);

/** One caller that floods. */
export interface FloodSettings {
  readonly held: Held;
  /** Used in turn. */
  readonly fronts: readonly Front[];
  readonly destinationPort: number;
  /** Limit of each download in kB/s; unset for none. */
  readonly rate?: number;
}

/** What a flood has done so far. */
export interface FloodDone {
  /** That its downloads brought. */
  readonly bytes: number;
  readonly dials: number;
  /** Dials that failed. */
  readonly failures: number;
  /** Tunnels that it holds, and those of them that have ended. */
  readonly tunnels: number;
  readonly ended: number;
}

/** Named parts of a plane, each with its processes. */
export type Groups = Readonly<Record<string, readonly number[]>>;

/** One work of the bench. */
export interface Settings {
  /** Used in turn. */
  readonly fronts: readonly Front[];
  readonly destinationPort: number;
  readonly work: WorkName;
  /** How many tunnels, or how many dials at a time. */
  readonly conns: number;
  /** How long to measure, in milliseconds. */
  readonly windowMs: number;
  /** Factor for the usual times before and between measurements: 1, or less if the run only checks that everything works. */
  readonly pace: number;
  /** Limit of all downloads together in MB/s, or of dials per second; 0 for none. */
  readonly rate: number;
  readonly groups: Groups;
  /** How long a dial may take, in milliseconds; default 5 s. */
  readonly within?: number;
  /** Measure this many dials instead of a time, beginning with the first. */
  readonly first?: number;
}

/** Downloads, and small tunnels beside them. */
export interface PathSettings extends Pick<Settings, 'fronts' | 'destinationPort' | 'conns' | 'windowMs'> {
  readonly small: number;
}

/** By name. A figure without a value is left out. */
export type Figures = Readonly<Record<string, number>>;

export interface Result {
  readonly figures: Figures;
  /** How often each error occurred. */
  readonly errors: Readonly<Record<string, number>>;
}

/** API servers with short dials and long tunnels. */
export interface Calls {
  readonly doors: readonly Ways[];
  /** The destination's port. Long tunnel n goes to 127.0.1.(n + 1), so that the plane's own lists tell them apart. */
  readonly port: number;
  readonly dialsPerSecond: number;
  /** How many bytes each dial sends, and gets back. Default: a few. */
  readonly dialBytes?: number;
  readonly tunnels: number;
  /** How long a dial may take, in milliseconds; default 10 s. */
  readonly within?: number;
  /** Used in turn. Default: all. */
  readonly protocols?: readonly Protocol[];
  /** Tunnels finish after a time between these milliseconds and are opened again; if unset, they stay. */
  readonly tunnelLife?: readonly [least: number, most: number];
}

/**
 * One dial and its outcome. `failed`: no tunnel. `cut`: there was a tunnel, but it ended before its few bytes were back.
 * `wrong`: other bytes came back.
 */
export interface DialRecord {
  readonly protocol: Protocol;
  /** The gateway that was dialled first, and the one that answered. */
  readonly first: number;
  readonly by: number;
  /** By the shared clock, in milliseconds. */
  readonly at: number;
  /** Milliseconds until the answer, whatever it was. */
  readonly ms: number;
  readonly outcome: 'ok' | 'failed' | 'cut' | 'wrong';
  readonly error?: string;
  /** When the tunnel of a dial that is `cut` ended. */
  readonly endedAt?: number;
}

/** A long tunnel that ended before it had finished. */
export interface Cut {
  readonly tunnel: number;
  readonly at: number;
  readonly how: string;
}

/** A frame of a long tunnel that came late. */
export interface Pause {
  readonly tunnel: number;
  /** When it came. */
  readonly at: number;
  /** How late. */
  readonly ms: number;
}

/** What calls have done since they were last asked. */
export interface CallsDone {
  readonly dials: readonly DialRecord[];
  readonly cuts: readonly Cut[];
  readonly pauses: readonly Pause[];
  readonly wrong: readonly string[];
  /** Tunnels that received a frame within the last second. */
  readonly moving: number;
  /** Long tunnels that have carried bytes since they were opened. */
  readonly carrying: number;
  /** Milliseconds of processor time so far. */
  readonly cpuMs: number;
}

import type { Door, Protocol } from '../door.ts';

/** A way to the destination: straight, through a port that forwards to it, perhaps by the name in a ClientHello, or through a plane's door. */
export type Front =
  | { readonly kind: 'direct'; readonly host?: string }
  | { readonly kind: 'forward'; readonly port: number; readonly named?: true }
  | { readonly kind: 'door'; readonly door: Door; readonly protocol: Protocol };

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

/** The settings for the process that floods. */
export interface FloodSettings {
  readonly held: Held;
  /** Used in turn. */
  readonly fronts: readonly [Front, ...Front[]];
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

/** The settings for a process of the load. */
export interface Settings {
  readonly front: Front;
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
  /** Measure this many dials instead of a time, beginning with the first. */
  readonly first?: number;
}

/** By name. A figure without a value is left out. */
export type Figures = Readonly<Record<string, number>>;

export interface Result {
  readonly figures: Figures;
  /** How often each error occurred. */
  readonly errors: Readonly<Record<string, number>>;
}

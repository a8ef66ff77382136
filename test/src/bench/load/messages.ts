import type { Door, Protocol } from '../../chaos/load/door.ts';

/** A way to the destination: straight, through a port that forwards to it, or through a plane's door. */
export type Front =
  | { readonly kind: 'direct' }
  | { readonly kind: 'forward'; readonly port: number }
  | { readonly kind: 'door'; readonly door: Door; readonly protocol: Protocol };

export const WORKS = [
  'bulk',
  'upload',
  'whole',
  'ping',
  'ping-under-bulk',
  'dials',
  'idle',
  'stall',
  'stall-up',
  'slow',
  'cut',
  'fairness',
] as const;
export type WorkName = (typeof WORKS)[number];

/** What a tenant that floods does: dials, downloads, tunnels that nobody reads, tunnels that carry nothing, or all of it at once. */
export const FLOODS = ['dials', 'downloads', 'stalled', 'idle', 'all'] as const;
export type FloodKind = (typeof FLOODS)[number];

/** The settings for the process that floods. */
export interface FloodSettings {
  readonly kind: FloodKind;
  readonly front: Front;
  readonly destinationPort: number;
  /** Most tunnels, and most loops of dials, of each kind. */
  readonly most: number;
}

/** What a flood has done so far. */
export interface FloodDone {
  /** That its downloads brought. */
  readonly bytes: number;
  readonly dials: number;
  /** Dials that failed. */
  readonly failures: number;
  /** Tunnels that it holds. */
  readonly tunnels: number;
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
  /** A second tenant, for the work that measures what it does to the first. */
  readonly flood?: FloodSettings;
}

/** By name. A figure without a value is left out. */
export type Figures = Readonly<Record<string, number>>;

export interface Result {
  readonly figures: Figures;
  /** How often each error occurred. */
  readonly errors: Readonly<Record<string, number>>;
}

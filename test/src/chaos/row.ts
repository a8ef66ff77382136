import type { Scope } from '../harness/index.ts';
import type { Door } from './load/door.ts';
import type { Load } from './load/load.ts';
import type { Targets } from './load/targets.ts';

/** A long tunnel of the load, as a gateway lists it. */
export interface Carried {
  readonly tunnel: number;
  readonly gateway: number;
  readonly hubId: string;
  readonly agentId: string;
}

/** What a row runs against. */
export interface Topology {
  /** Where callers dial, in an order that `Carried.gateway` and `DialRecord.first` count by. */
  readonly doors: readonly Door[];
  carried(): Promise<readonly Carried[]>;
  /** What the plane still lacks (a process, a session, a link); undefined when it is whole. */
  missing(): Promise<string | undefined>;
}

/** Bounds on counts hold for every row: no failed dial, no wrong byte, and no tunnel cut but those a strike names. */
export interface Bounds {
  /** The slowest answer to a dial, in milliseconds. */
  readonly dialMs?: number;
  /** How long after a strike its tunnels' callers may wait for the end, in milliseconds. */
  readonly callersEndMs?: number;
  /** How long after a strike its tunnels' destination sockets may stay, in milliseconds. */
  readonly destinationsEndMs?: number;
}

/** The moment of a fault, and what it takes with it. */
export interface Strike {
  readonly at: number;
  /** When what it kills was gone: on a busy machine that takes a moment. */
  readonly over: number;
  /** Long tunnels that it may cut, once each. */
  readonly tunnels: ReadonlySet<number>;
  /** A gateway that dies: the dials that are under way through it fail. */
  readonly gateway?: number;
  /** Whether its tunnels must end: of a process that is gone, and not of one that drains. */
  readonly fatal: boolean;
}

export interface StrikeOptions {
  readonly takes: (carried: Carried) => boolean;
  readonly gateway?: number;
  /** Default true. */
  readonly fatal?: boolean;
}

/** One more figure of a row, and its bound if the row asserts one. */
export interface Measure {
  readonly name: string;
  readonly value: number;
  readonly unit: 'ms' | 'MB' | '% of a processor' | '';
  readonly most?: number;
}

export interface Context<T extends Topology = Topology> {
  readonly scope: Scope;
  readonly plane: T;
  readonly load: Load;
  readonly targets: Targets;
  readonly short: boolean;
  /** Lists which tunnels a fault takes with it, and then commits it. */
  strike(options: StrikeOptions, commit: () => unknown): Promise<Strike>;
  /** Lets the load run on: so long in a full run, and `short` or a quarter of it in a short one. In milliseconds. */
  hold(ms: number, short?: number): Promise<void>;
  measure(measure: Measure): void;
  /** Something that the table shall say besides. */
  note(text: string): void;
}

/** A fault, what it is injected into, and what must hold. */
export interface Row<T extends Topology = Topology> {
  /** Of the command line. */
  readonly name: string;
  /** Runs in a network of its own, whose sockets hold little: for faults that would else exhaust the machine's memory for TCP. */
  readonly apart?: boolean;
  /** The fault as the table says it. */
  readonly fault: string;
  /** What must hold, as the table says it. */
  readonly holds: string;
  readonly bounds: Bounds;
  /** Of long tunnels that finish in good order, in milliseconds; without it they stay for the whole row. */
  readonly tunnelLife?: readonly [least: number, most: number];
  /** Why it cannot run here. */
  readonly skip?: () => string | undefined;
  topology(scope: Scope): Promise<T>;
  /** Resolves when the fault is over; the time until all is normal counts from then. */
  inject(context: Context<T>): Promise<void>;
}

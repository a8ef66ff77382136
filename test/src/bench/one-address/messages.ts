/** What clients do: open connections one after the other, read as fast as they can, ask on kept connections, or keep silent ones. */
export const WORKS = ['connections', 'bulk', 'requests', 'idle'] as const;

export type Work = (typeof WORKS)[number];

export interface LoadSettings {
  readonly work: Work;
  /** Where the API server is reached: a hub, a proxy, or itself. */
  readonly port: number;
  readonly conns: number;
  readonly windowMs: number;
  /** The process in between, whose time and memory are taken; 0 for none. */
  readonly pid: number;
}

/** By name; rates are of a second. */
export type LoadFigures = Readonly<Record<string, number>>;

/** The name by which clients ask. */
export const NAME = 'api.bench.example';

/** A request, and its answer. */
export const REQUEST_BYTES = 1024;

/** Behind the ClientHello, a client says in one byte what it wants: its bytes back, or as many as it takes. */
export const [ECHO, SOURCE] = ['e', 's'];

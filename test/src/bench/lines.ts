import type { WorkName } from '../rig/load/messages.ts';
import type { Direction } from '../rig/network.ts';

/** What a line is measured on: no plane, relays, an all-in-one server and an agent, split tiers, upstream's pair, bare sockets of this runtime, what passes clients on by name, what is at both ends of a path. */
export type Kind = 'direct' | 'relays' | 'server' | 'split' | 'anp' | 'floor' | 'by-name' | 'path';

/** Names of figures in the load, and what tables call them. */
type Shown = Readonly<Record<string, string>>;

export interface Line {
  /** The name on the command line: `bulk-x32`. */
  readonly name: string;
  readonly title: string;
  readonly work: WorkName | 'path';
  /** The path of that work, in each direction, and how many small tunnels are beside the downloads. */
  readonly path?: { readonly direction: Direction; readonly small: number };
  readonly conns: number;
  /** Limit of all downloads together in MB/s, or of dials per second; 0 for none. */
  readonly rate: number;
  readonly on: readonly Kind[];
  /** Whether it needs a plane that has carried nothing yet. */
  readonly fresh: boolean;
  /** Whether it is measured in only one round, however many there are: its third digit does not matter. */
  readonly once: boolean;
  /** Measures this many dials, beginning with the first, instead of a time. */
  readonly first?: number;
  readonly shows: Shown;
}

const ALL: readonly Kind[] = ['direct', 'relays', 'server', 'split', 'anp'];
const PLANES: readonly Kind[] = ['server', 'anp'];
const DIALS_ON: readonly Kind[] = [...ALL, 'floor'];

const CPU_PER_GB = { plane_cpu_s_per_gb: 'plane CPU s/GB' };
const CPU_PER_PING = { plane_cpu_us_per_ping: 'plane CPU µs a ping' };
const PER_TUNNEL = { plane_kb_per_tunnel: 'KB a tunnel' };
const RATE = { gb_per_s: 'GB/s' };
const BULK = { ...RATE, ...CPU_PER_GB };
const WHOLE = {
  not_whole: 'not whole',
  ...RATE,
  server_peak_mb: 'server’s memory at most, MB',
  agent_peak_mb: 'agent’s, MB',
};
const PING = { p50_us: 'p50 µs', p99_us: 'p99 µs' };
const PINGS = { pings_per_s: 'pings/s' };
const DIALLING = {
  dials_per_s: 'dials/s',
  first_byte_p99_us: 'first byte p99 µs',
  plane_cpu_ms_per_dial: 'plane CPU ms a dial',
  dials_failed: 'failed',
};
const STALL = {
  down_kept: 'download kept',
  up_kept: 'upload kept',
  ping_kept: 'pings kept',
  dials_kept: 'dials kept',
  dials_failed: 'dials failed',
  swallowed_mb: 'swallowed MB',
  kernel_tcp_mb: 'kernel TCP MB',
  plane_rss_growth_mb: 'growth MB',
};

interface Options {
  readonly rate?: number;
  readonly on?: readonly Kind[];
  readonly fresh?: boolean;
  readonly once?: boolean;
}

function line(work: Line['work'], conns: number, shows: Shown, options: Options = {}): Line {
  const { rate = 0, on = ALL, fresh = false, once = false } = options;
  const at = rate > 0 ? `@${rate}` : '';
  const title = `${work} ×${conns}${rate > 0 ? ` at ${rate} MB/s` : ''}`;
  return { name: `${work}-x${conns}${at}`, title, work, conns, rate, on, fresh, once, shows };
}

/** For lines that may break a plane and that take long. */
const ALONE: Options = { on: PLANES, fresh: true, once: true };

/** Dials of an idle plane, as a webhook or an exec makes them: one each half second, beginning with the first. */
const SPARSE = { dial_p50_us: 'p50 µs to the answer', dial_p90_us: 'p90 µs to the answer' };
const FIRST_TEN = { first_ten_p50_us: 'p50 µs of the first ten' };

function sparse(shows: Shown, options: Options = {}): Line {
  return { ...line('dials', 1, shows, { on: ['server', 'anp', 'floor'], rate: 2, ...options }), first: 40 };
}

const BY_NAME: Options = { on: ['by-name'] };

/** Of clients that reach their API server by name: they open connections, read as fast as they can, ask on kept connections, or are silent. */
export function linesByName(silent: number): readonly Line[] {
  return [
    line('dials', 16, DIALLING, BY_NAME),
    line('bulk', 4, BULK, BY_NAME),
    line('ping', 16, { ...PINGS, ...PING, ...CPU_PER_PING }, BY_NAME),
    ...(silent > 0 ? [line('idle', silent, PER_TUNNEL, BY_NAME)] : []),
  ];
}

/** All other lines, in order: first those that need a fresh plane, last those that may break one. */
export const LINES: readonly Line[] = [
  {
    ...line('dials', 8, DIALLING, { on: DIALS_ON.filter((kind) => kind !== 'direct'), fresh: true }),
    name: 'dials-first',
    title: 'the first 2,000 dials, ×8',
    first: 2000,
  },
  {
    ...sparse({ ...SPARSE, ...FIRST_TEN }, { fresh: true }),
    name: 'dials-sparse',
    title: 'one dial each half second, of a fresh pair',
  },
  line(
    'idle',
    500,
    { ...PER_TUNNEL, plane_rss_before_mb: 'RSS after start, MB' },
    {
      on: ['relays', 'server', 'split', 'anp'],
      fresh: true,
    },
  ),
  line('bulk', 1, BULK),
  line('bulk', 32, BULK),
  line('upload', 1, BULK),
  ...[500, 2000].map((conns) => ({
    ...line('whole', conns, WHOLE, ALONE),
    title: `${conns} tunnels at once, of 5 MiB each`,
  })),
  line('ping', 1, { ...PING, ...CPU_PER_PING }),
  line('ping', 64, { ...PINGS, p99_us: PING.p99_us, ...CPU_PER_PING }),
  line('ping-under-bulk', 8, { ...PING, ...RATE }),
  line('ping-under-bulk', 8, PING, { rate: 100 }),
  line('dials', 8, DIALLING, { on: DIALS_ON }),
  { ...sparse(SPARSE), name: 'dials-sparse-warm', title: 'one dial each half second, of a warm pair' },
  ...[1, 16, 500].flatMap((conns) => [line('stall', conns, STALL, ALONE), line('stall-up', conns, STALL, ALONE)]),
];

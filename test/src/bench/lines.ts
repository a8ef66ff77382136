import { FLOODS, type FloodKind, type WorkName } from '../rig/load/messages.ts';

/**
 * What a line is measured on: no plane, relays, an all-in-one server and an agent, split tiers, upstream's pair, one server with or without
 * traces, a long way, upstream's agent, split tiers with two tenants, bare sockets of this runtime, the all-in-one server and agent on another
 * Node, or one server with and without resume, also a long way off.
 */
export type Kind =
  | 'direct'
  | 'relays'
  | 'server'
  | 'split'
  | 'anp'
  | 'traced'
  | 'far'
  | 'mixed'
  | 'tenants'
  | 'floor'
  | 'node'
  | 'resume'
  | 'far-resume';

/** A figure as tables show it. */
export interface Shown {
  /** The figure's name in the load. */
  readonly figure: string;
  readonly label: string;
  readonly better: 'more' | 'less';
}

export interface Line {
  /** The name on the command line: `bulk-x32`. */
  readonly name: string;
  readonly title: string;
  /** `start` is measured by the code that starts the processes, everything else by the load. */
  readonly work: WorkName | 'start';
  readonly conns: number;
  /** Limit of all downloads together in MB/s, or of dials per second; 0 for none. */
  readonly rate: number;
  readonly on: readonly Kind[];
  /** Whether it needs a plane that has carried nothing yet. */
  readonly fresh: boolean;
  /** Whether it is measured in only one round, however many there are: its third digit does not matter. */
  readonly once: boolean;
  /** How many simulated agents replace the one real agent. */
  readonly agents?: number;
  /** Measures this many dials, beginning with the first, instead of a time. */
  readonly first?: number;
  /** What a second tenant does meanwhile. */
  readonly flood?: FloodKind;
  readonly shows: readonly Shown[];
}

const ALL: readonly Kind[] = ['direct', 'relays', 'server', 'split', 'anp'];
const PLANES: readonly Kind[] = ['server', 'anp'];
/** Where the size of code and data, or the version of the runtime, is seen. */
const DIALS_ON: readonly Kind[] = [...ALL, 'floor', 'node'];

function more(figure: string, label: string): Shown {
  return { figure, label, better: 'more' };
}

function less(figure: string, label: string): Shown {
  return { figure, label, better: 'less' };
}

const CPU_PER_GB = less('plane_cpu_s_per_gb', 'plane CPU s/GB');
const CPU_PER_PING = less('plane_cpu_us_per_ping', 'plane CPU µs a ping');
const PER_TUNNEL = less('plane_kb_per_tunnel', 'KB a tunnel');
const RECOVERY = less('recovery_ms', 'next dial after, ms');
const BULK = [more('gb_per_s', 'GB/s'), CPU_PER_GB];
const WHOLE = [
  less('not_whole', 'not whole'),
  more('gb_per_s', 'GB/s'),
  less('server_peak_mb', 'server’s memory at most, MB'),
  less('agent_peak_mb', 'agent’s, MB'),
];
const PING = [less('p50_us', 'p50 µs'), less('p99_us', 'p99 µs')];
const DIALLING = [
  more('dials_per_s', 'dials/s'),
  less('first_byte_p99_us', 'first byte p99 µs'),
  less('plane_cpu_ms_per_dial', 'plane CPU ms a dial'),
  less('dials_failed', 'failed'),
];
const STALL = [
  more('down_kept', 'download kept'),
  more('up_kept', 'upload kept'),
  more('ping_kept', 'pings kept'),
  more('dials_kept', 'dials kept'),
  less('dials_failed', 'dials failed'),
  less('swallowed_mb', 'swallowed MB'),
  less('kernel_tcp_mb', 'kernel TCP MB'),
  less('plane_rss_growth_mb', 'growth MB'),
];
const CUT = [RECOVERY, less('plane_rss_growth_mb', 'growth after 10 s, MB'), less('dials_failed', 'dials failed then')];

interface Options {
  readonly rate?: number;
  readonly on?: readonly Kind[];
  readonly fresh?: boolean;
  readonly once?: boolean;
}

function line(work: Line['work'], conns: number, shows: readonly Shown[], options: Options = {}): Line {
  const { rate = 0, on = ALL, fresh = false, once = false } = options;
  const at = rate > 0 ? `@${rate}` : '';
  const title = work === 'start' ? 'start to first dial' : `${work} ×${conns}${rate > 0 ? ` at ${rate} MB/s` : ''}`;
  return { name: `${work}-x${conns}${at}`, title, work, conns, rate, on, fresh, once, shows };
}

/** For lines that may break a plane and that take long. */
const ALONE: Options = { on: PLANES, fresh: true, once: true };

/** Dials of an idle plane, as a webhook or an exec makes them: one each half second, beginning with the first. */
const SPARSE = [less('dial_p50_us', 'p50 µs to the answer'), less('dial_p90_us', 'p90 µs to the answer')];
const FIRST_TEN = less('first_ten_p50_us', 'p50 µs of the first ten');

function sparse(shows: readonly Shown[], options: Options = {}): Line {
  return { ...line('dials', 1, shows, { on: ['server', 'anp', 'floor', 'node'], rate: 2, ...options }), first: 40 };
}

/** All lines for a plane, in order: first those that need a fresh plane, last those that may break one. */
export const STANDARD: readonly Line[] = [
  line('start', 1, [less('first_dial_ms', 'ms')], { on: [...PLANES, 'node'], fresh: true }),
  {
    ...line('dials', 8, DIALLING, { on: DIALS_ON.filter((kind) => kind !== 'direct'), fresh: true }),
    name: 'dials-first',
    title: 'the first 2,000 dials, ×8',
    first: 2000,
  },
  {
    ...sparse([...SPARSE, FIRST_TEN], { fresh: true }),
    name: 'dials-sparse',
    title: 'one dial each half second, of a fresh pair',
  },
  line('idle', 500, [PER_TUNNEL, less('plane_rss_before_mb', 'RSS after start, MB')], {
    on: ['relays', 'server', 'split', 'anp'],
    fresh: true,
  }),
  line('bulk', 1, BULK),
  line('bulk', 32, BULK),
  line('upload', 1, BULK),
  ...[500, 2000].map((conns) => ({
    ...line('whole', conns, WHOLE, ALONE),
    title: `${conns} tunnels at once, of 5 MiB each`,
  })),
  line('ping', 1, [...PING, CPU_PER_PING]),
  line('ping', 64, [more('pings_per_s', 'pings/s'), less('p99_us', 'p99 µs'), CPU_PER_PING]),
  line('ping-under-bulk', 8, [...PING, more('gb_per_s', 'GB/s')]),
  line('ping-under-bulk', 8, PING, { rate: 100 }),
  line('dials', 8, DIALLING, { on: DIALS_ON }),
  { ...sparse(SPARSE), name: 'dials-sparse-warm', title: 'one dial each half second, of a warm pair' },
  ...[1, 16, 500].flatMap((conns) => [line('stall', conns, STALL, ALONE), line('stall-up', conns, STALL, ALONE)]),
  ...[32, 500].map((conns) => line('cut', conns, CUT, ALONE)),
];

/** Lines along which a figure must not bend upwards, and that figure. */
const GROWTH = {
  bulk: CPU_PER_GB,
  pings: CPU_PER_PING,
  idle: PER_TUNNEL,
  agents: less('server_cpu_ms_per_dial', 'server CPU ms a dial'),
} as const satisfies Record<string, Shown>;

type GrowthName = keyof typeof GROWTH;

function along(of: GrowthName, work: WorkName, points: readonly number[], options: Options = {}): Line[] {
  const shown: Shown = GROWTH[of];
  const shows = work === 'bulk' ? [more('gb_per_s', 'GB/s'), shown] : [shown];
  return points.map((at) => {
    const own = line(work, of === 'agents' ? 8 : at, shows, { on: ['server'], once: true, ...options });
    const growth = { ...own, name: `growth-${of}-${at}` };
    return of === 'agents' ? { ...growth, title: `${work}, ${at} agents`, agents: at } : growth;
  });
}

const GROWING: readonly Line[] = [
  ...along('bulk', 'bulk', [1, 4, 16, 64, 256]),
  ...along('pings', 'ping', [1, 4, 16, 64, 256, 1024]),
  // Fewer tunnels say nothing: a process's memory varies by megabytes of its own.
  ...along('idle', 'idle', [100, 1000, 5000, 20_000], { fresh: true }),
  ...along('agents', 'dials', [1, 10, 100, 1000], { fresh: true }),
];

const DIALS = [
  more('dials_per_s', 'dials/s'),
  less('dial_p50_us', 'p50 µs'),
  less('dial_p99_us', 'p99 µs'),
  less('plane_cpu_ms_per_dial', 'plane CPU ms a dial'),
  less('dials_failed', 'failed'),
];

/** The cost of traces: at full speed, and at a rate that leaves enough processor time to export each one. */
export const TRACING: readonly Line[] = [
  { ...line('dials', 8, DIALS, { on: ['traced'] }), name: 'traces-x8', title: 'dials ×8, traced' },
  { ...line('dials', 8, DIALS, { on: ['traced'], rate: 500 }), name: 'traces-500', title: '500 dials/s, traced' },
];

/** What one tunnel to a far agent carries. The load asks for half of what the relay, which makes the way long, can hold. */
export const FAR: readonly Line[] = [
  {
    ...line('bulk', 1, [more('gb_per_s', 'GB/s')], { on: ['far'], rate: 50 }),
    name: 'far-bulk',
    title: 'bulk ×1 at 50 MB/s, 100 ms of round-trip time',
  },
];

/** The cost of being able to resume a tunnel. */
export const RESUME: readonly Line[] = [
  { ...line('idle', 5000, [PER_TUNNEL], { on: ['resume'], fresh: true }), name: 'resume-idle' },
  { ...line('bulk', 1, BULK, { on: ['resume'] }), name: 'resume-bulk' },
  { ...line('bulk', 32, BULK, { on: ['resume'] }), name: 'resume-bulk-x32' },
  { ...line('upload', 1, BULK, { on: ['resume'] }), name: 'resume-upload' },
  { ...line('ping', 1, PING, { on: ['resume'] }), name: 'resume-ping' },
  { ...line('dials', 8, DIALS, { on: ['resume'] }), name: 'resume-dials' },
];
export const RESUME_FAR: readonly Line[] = FAR.map((line) => ({ ...line, name: 'resume-far', on: ['far-resume'] }));

const BESIDE_SLOW = [
  less('ping_p50_us', 'ping p50 µs'),
  less('ping_p99_us', 'ping p99 µs'),
  less('dial_p50_us', 'dial p50 µs'),
  less('dial_p99_us', 'dial p99 µs'),
  more('down_gb_per_s', 'download GB/s'),
  more('up_gb_per_s', 'upload GB/s'),
  less('dials_failed', 'dials failed'),
];

/** What one slow caller does to its neighbours where all tunnels of an agent share one window. */
export const MIXED: readonly Line[] = [
  { ...line('slow', 1, BESIDE_SLOW, { on: ['mixed'] }), title: 'beside a caller that reads 1 MiB/s' },
  { ...line('stall', 1, STALL, { on: ['mixed'] }), name: 'mixed-stall-x1', title: 'stall ×1, a Go agent' },
];

const BESIDE_FLOOD = [
  less('dials_failed', 'dials failed'),
  less('ping_p99_us', 'ping p99 µs'),
  less('ping_p99_times', 'times alone'),
  less('dial_p99_us', 'dial p99 µs'),
  less('dial_p99_times', 'times alone'),
  more('share', 'share of downloads'),
  more('flood_dials_per_s', 'dials/s of the flood'),
  less('plane_rss_growth_mb', 'growth MB'),
];

/**
 * What one tenant's flood does to another, beside a plane that takes both for one tenant and so is not fair between them; and what a
 * tenant alone gets of a plane of two, beside a plane without tenants.
 */
export const FAIRNESS: readonly Line[] = [
  ...FLOODS.map((flood) => ({
    ...line('fairness', 5000, BESIDE_FLOOD, { on: ['tenants'], fresh: true, once: true }),
    name: `fairness-${flood}`,
    title: `beside another tenant’s flood: ${flood}`,
    flood,
  })),
  { ...line('bulk', 32, BULK, { on: ['split', 'tenants'] }), name: 'alone-bulk', title: 'a tenant alone: bulk ×32' },
  {
    ...line('dials', 64, DIALS, { on: ['split', 'tenants'] }),
    name: 'alone-dials',
    title: 'a tenant alone: dials ×64',
  },
];

export const LINES: readonly Line[] = [
  ...STANDARD,
  ...GROWING,
  ...TRACING,
  ...FAR,
  ...RESUME,
  ...RESUME_FAR,
  ...MIXED,
  ...FAIRNESS,
];

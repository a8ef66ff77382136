import { quantile } from '../rig/figures.ts';
import type { TunnelEnd } from '../rig/load/destination.ts';
import type { Cut, DialRecord, Pause } from '../rig/load/messages.ts';
import type { Bounds, Measure, Strike } from './row.ts';

/** An answer that was under way when a strike came may arrive at least this much later, in milliseconds. */
const LEAST_SLACK = 100;

/** Units that get worse on a busy machine. */
const TIMES: ReadonlySet<Measure['unit']> = new Set(['ms', '% of a processor']);

/** What a row saw since the start of the fault. */
export interface Seen {
  readonly dials: readonly DialRecord[];
  readonly cuts: readonly Cut[];
  readonly pauses: readonly Pause[];
  readonly ends: readonly TunnelEnd[];
  readonly strikes: readonly Strike[];
  /** The slowest of a hundred dials before the fault, in milliseconds: a busy machine takes longer to pass on an answer. */
  readonly before: number;
  /** Whether bounds on time are judged. Without them, something that never came still counts as late. */
  readonly timed: boolean;
}

/** The results of a row, as the table shows them; times in milliseconds. */
export interface Figures {
  readonly failed: number;
  /** How many of the failed dials were under way through a gateway that died. */
  readonly inFlight: number;
  readonly worst: number;
  readonly cut: number;
  /** Cut tunnels that ran through what was struck. */
  readonly carried: number;
  /** Short dials that were answered, but whose tunnel the strike ended. */
  readonly shortCut: number;
  readonly callersEnd: number | undefined;
  readonly destinationsEnd: number | undefined;
  /** Tunnels that outlived a strike, and how late their frames were: the slowest of a hundred. */
  readonly outlived: number;
  readonly pause: number | undefined;
}

export interface Judged {
  readonly figures: Figures;
  readonly problems: readonly string[];
}

/** Counts, and compares the counts with what must hold. */
export function judge(seen: Seen, bounds: Bounds, measures: readonly Measure[]): Judged {
  const { dials, strikes, before, timed } = seen;
  const slack = Math.max(LEAST_SLACK, before);
  const failed = dials.filter(({ outcome }) => outcome === 'failed' || outcome === 'wrong');
  const excused = failed.filter((dial) => strikes.some((strike) => inFlight(dial, strike, slack)));
  const shortCut = dials.filter(({ outcome }) => outcome === 'cut');
  const strayShort = shortCut.filter((dial) => !strikes.some((strike) => throughStruck(dial, strike, slack)));
  const { taken, stray, missing } = assign(seen);
  const counted = dials.filter((dial) => !excused.includes(dial));
  const figures: Figures = {
    failed: failed.length,
    inFlight: excused.length,
    worst: Math.max(0, ...counted.map(({ ms }) => ms)),
    cut: seen.cuts.length,
    carried: taken.length,
    shortCut: shortCut.length,
    callersEnd: greatest(taken.map(({ strike, cut }) => cut.at - strike.at)),
    destinationsEnd: greatest(destinationDelays(seen)),
    ...outlived(seen),
  };
  const broken = failed.filter((dial) => !excused.includes(dial));
  const problems = [
    ...texts('dials failed', broken, ({ error, protocol }) => `${protocol}: ${error}`),
    ...texts('short tunnels were cut that the fault did not touch', strayShort, ({ error }) => `${error}`),
    ...texts('tunnels were cut that the fault did not touch', stray, ({ tunnel, how }) => `tunnel ${tunnel}: ${how}`),
    ...texts('tunnels through the failed part did not end', missing, (tunnel) => `tunnel ${tunnel}`),
    ...beyond('the slowest dial took', figures.worst, bounds.dialMs, timed),
    ...beyond("callers' ends came after", figures.callersEnd, bounds.callersEndMs, timed),
    ...beyond('destination sockets ended after', figures.destinationsEnd, bounds.destinationsEndMs, timed),
    ...beyond('tunnels that went on paused for', figures.pause, bounds.pauseMs, timed),
    ...measures.flatMap(({ name, value, unit, most }) => beyond(`${name}:`, value, most, timed || !TIMES.has(unit))),
  ];
  return { figures, problems };
}

/** Whether a dial was under way through a gateway when that gateway died. */
function inFlight({ first, by, at, ms }: DialRecord, strike: Strike, slack: number): boolean {
  return (first === strike.gateway || by === strike.gateway) && at <= strike.over + slack && at + ms >= strike.at;
}

/** Whether the few bytes of a short dial were on their way through what was struck. */
function throughStruck({ at, ms, endedAt = 0 }: DialRecord, strike: Strike, slack: number): boolean {
  return strike.fatal && at + ms <= strike.over + slack && endedAt >= strike.at;
}

/** Each cut belongs to the latest strike before it that took its tunnel, and each strike cuts a tunnel once. */
function assign({ cuts, strikes }: Seen) {
  const taken: { strike: Strike; cut: Cut }[] = [];
  const stray: Cut[] = [];
  for (const cut of cuts) {
    const strike = strikes
      .filter(({ at, tunnels }) => at <= cut.at && tunnels.has(cut.tunnel))
      .findLast((strike) => !taken.some((other) => other.strike === strike && other.cut.tunnel === cut.tunnel));
    if (strike) taken.push({ strike, cut });
    else stray.push(cut);
  }
  const missing = strikes
    .filter(({ fatal }) => fatal)
    .flatMap((strike) =>
      [...strike.tunnels].filter((tunnel) => !taken.some((t) => t.strike === strike && t.cut.tunnel === tunnel)),
    );
  return { taken, stray, missing };
}

function destinationDelays({ ends, strikes }: Seen): number[] {
  return strikes
    .filter(({ fatal }) => fatal)
    .flatMap(({ at, tunnels }) =>
      [...tunnels].map((tunnel) => {
        const end = ends.find((end) => end.tunnel === tunnel && end.at >= at);
        return end ? end.at - at : Number.POSITIVE_INFINITY;
      }),
    );
}

/** Of each tunnel that a strike touched, the longest pause after it. */
function outlived({ pauses, strikes }: Seen): Pick<Figures, 'outlived' | 'pause'> {
  const longest = strikes.flatMap(({ at, outlive }) =>
    [...outlive].map((tunnel) =>
      Math.max(0, ...pauses.filter((pause) => pause.tunnel === tunnel && pause.at >= at).map(({ ms }) => ms)),
    ),
  );
  return { outlived: longest.length, pause: longest.length > 0 ? quantile(longest, 0.99) : undefined };
}

function greatest(values: readonly number[]): number | undefined {
  return values.length > 0 ? Math.max(...values) : undefined;
}

/** `3 dials failed: grpc: ... (2), mtls: ... (1)` */
function texts<T>(what: string, all: readonly T[], told: (each: T) => string): string[] {
  if (all.length === 0) return [];
  const counts = new Map<string, number>();
  for (const reason of all.map(told)) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const shown = [...counts].slice(0, 6).map(([reason, count]) => `${reason} (${count})`);
  return [`${all.length} ${what}: ${shown.join(', ')}${counts.size > 6 ? ', ...' : ''}`];
}

function beyond(what: string, value: number | undefined, most: number | undefined, judged = true): string[] {
  if (value === undefined || most === undefined || value <= most) return [];
  if (!judged && Number.isFinite(value)) return [];
  return [`${what} ${Math.round(value)}, and the limit is ${most}`];
}

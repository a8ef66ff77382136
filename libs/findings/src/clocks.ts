import { FINDINGS } from './defaults.ts';
import type { Evidence } from './evidence.ts';
import { age, millis, type Result, reportOf } from './result.ts';

/** A clock of the plane, and how far it is ahead of the one here, in milliseconds. */
type Clock = Evidence['clocks'][number];

/** Returns the middle one of numbers, which few wrong ones do not move; 0 if there are none. */
export function middleOf(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

function clocksOf({ members, clocks }: Evidence): readonly Clock[] {
  return [...members.flatMap(({ id: of, aheadMs }) => (aheadMs === undefined ? [] : [{ of, aheadMs }])), ...clocks];
}

/** Returns how far a clock is ahead of what most agree on; undefined where they do not: of two, either may be wrong. */
function againstMost(clocks: readonly Clock[]): ((clock: Clock) => number) | undefined {
  const middle = middleOf(clocks.map(({ aheadMs }) => aheadMs));
  const off = ({ aheadMs }: Clock) => aheadMs - middle;
  const agree = clocks.filter((clock) => Math.abs(off(clock)) < FINDINGS.clocksApartMs);
  return 2 * agree.length > clocks.length ? off : undefined;
}

const NTP = 'synchronise it by NTP (timedatectl, chronyc tracking)';

/** Who is the odd one, and how far. */
export function ofClocks(evidence: Evidence): Result[] {
  const report = reportOf('clocks');
  const sorted = clocksOf(evidence).toSorted((a, b) => a.aheadMs - b.aheadMs);
  const [slowest, fastest] = [sorted[0], sorted.at(-1)];
  if (evidence.members.every(({ aheadMs }) => aheadMs === undefined) || !slowest || !fastest) return [];
  const apart = fastest.aheadMs - slowest.aheadMs;
  if (apart < FINDINGS.clocksApartMs) return [report.pass('members', `within ${millis(apart)} of each other`)];
  const outcome = (ms: number) => (Math.abs(ms) < FINDINGS.clocksFarApartMs ? report.warn : report.fail);
  const off = againstMost(sorted);
  if (!off) {
    const detail = `${fastest.of} is ${length(apart)} ahead of ${slowest.of}`;
    return [outcome(apart)('members', detail, `see which of the two is right, and ${NTP}`)];
  }
  const others = sorted.filter((clock) => Math.abs(off(clock)) < FINDINGS.clocksApartMs).map(({ of }) => of);
  const most = others.slice(0, FINDINGS.suspects).join(', ') + (others.length > FINDINGS.suspects ? ' and others' : '');
  return sorted
    .filter((clock) => Math.abs(off(clock)) >= FINDINGS.clocksApartMs)
    .map((clock) => outcome(off(clock))(clock.of, `its clock is ${offBy(off(clock))} that of ${most}`, NTP));
}

/** Says of a member whose clock is so far off that certificates and tokens seem invalid to it: `10 min 0 s behind`. */
export function farOff(evidence: Evidence, member: string): string | undefined {
  const clocks = clocksOf(evidence);
  const own = clocks.find(({ of }) => of === member);
  const off = own && againstMost(clocks)?.(own);
  return off !== undefined && Math.abs(off) >= FINDINGS.clocksFarApartMs ? offBy(off) : undefined;
}

function offBy(ms: number): string {
  return ms < 0 ? `${length(-ms)} behind` : `${length(ms)} ahead of`;
}

function length(ms: number): string {
  return ms < 60_000 ? millis(ms) : age(ms);
}

import { FINDINGS } from './defaults.ts';
import type { Evidence } from './evidence.ts';
import { age, millis, type Report, type Result } from './result.ts';

/** A clock of the plane, and how far it is ahead of the one here, in milliseconds. */
type Clock = Evidence['clocks'][number];

/** Returns the middle one of numbers, which few wrong ones do not move; 0 if there are none. */
export function middleOf(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

/** Measures all clocks by what most of the trusted ones agree on. `off` is undefined if they do not agree: of two, either may be wrong. */
function measured({ members, clocks }: Evidence) {
  const own = members.flatMap(({ id: of, aheadMs }): Clock[] => (aheadMs === undefined ? [] : [{ of, aheadMs }]));
  const all = [...own, ...clocks].toSorted((a, b) => a.aheadMs - b.aheadMs);
  const trusted = all.filter(({ claimed }) => !claimed);
  const middle = middleOf(trusted.map(({ aheadMs }) => aheadMs));
  const off = ({ aheadMs }: Clock) => aheadMs - middle;
  const agree = trusted.filter((clock) => Math.abs(off(clock)) < FINDINGS.clocksApartMs);
  return { all, trusted, agree, off: 2 * agree.length > trusted.length ? off : undefined };
}

const NTP = 'synchronise it by NTP (timedatectl, chronyc tracking)';

/** Who is the odd one, and how far. */
export function ofClocks(evidence: Evidence, report: Report): Result[] {
  if (evidence.members.every(({ aheadMs }) => aheadMs === undefined)) return [];
  const { all, trusted, agree, off } = measured(evidence);
  const apart = apartOf(all);
  if (apart < FINDINGS.clocksApartMs) return [report.pass('members', `within ${millis(apart)} of each other`)];
  const outcome = (ms: number) => (Math.abs(ms) < FINDINGS.clocksFarApartMs ? report.warn : report.fail);
  if (!off) {
    const detail = `${trusted.at(-1)?.of} is ${length(apartOf(trusted))} ahead of ${trusted[0]?.of}`;
    return [outcome(apartOf(trusted))('members', detail, `see which of the two is right, and ${NTP}`)];
  }
  const others = agree.map(({ of }) => of);
  const most = others.slice(0, FINDINGS.suspects).join(', ') + (others.length > FINDINGS.suspects ? ' and others' : '');
  return all
    .filter((clock) => Math.abs(off(clock)) >= FINDINGS.clocksApartMs)
    .map((clock) => outcome(off(clock))(clock.of, `its clock is ${offBy(off(clock))} that of ${most}`, NTP));
}

/** How far the last clock is ahead of the first. */
function apartOf(sorted: readonly Clock[]): number {
  return (sorted.at(-1)?.aheadMs ?? 0) - (sorted[0]?.aheadMs ?? 0);
}

/** Says of a member whose clock is so far off that certificates and tokens seem invalid to it: `10 min 0 s behind`. */
export function farOff(evidence: Evidence, member: string): string | undefined {
  const { trusted, off: offOf } = measured(evidence);
  const own = trusted.find(({ of }) => of === member);
  const off = own && offOf?.(own);
  return off !== undefined && Math.abs(off) >= FINDINGS.clocksFarApartMs ? offBy(off) : undefined;
}

function offBy(ms: number): string {
  return ms < 0 ? `${length(-ms)} behind` : `${length(ms)} ahead of`;
}

function length(ms: number): string {
  return ms < 60_000 ? millis(ms) : age(ms);
}

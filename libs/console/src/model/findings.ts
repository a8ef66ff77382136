import { type Evidence, type Finding, findingsIn, judge, lost, type Result } from '@isthmus/findings';
import type { Role } from '@isthmus/proto/admin-enums';
import type { Plane } from './plane.ts';

/** Of agents and the like, one by one. A wrong flag of theirs often concerns all. */
const MOST_ALIKE = 20;

/** Returns what is wrong with the plane, failures first: by the rules of `isthmus check`. */
export function findingsOf(plane: Plane): Finding[] {
  return plane.at === 0 ? [] : briefly(findingsIn(judge(evidenceOf(plane))));
}

/** The ids of gateways or hubs that went away without a word and have not come back. */
export function lostOf(plane: Plane, role: Role): string[] {
  return lost(evidenceOf(plane), role).map(({ id }) => id);
}

/** `1 failed, 2 warned` */
export function sumOf(findings: readonly Finding[]): string {
  const failed = findings.filter(({ outcome }) => outcome === 'fail').length;
  return `${failed} failed, ${findings.length - failed} warned`;
}

/** How bad the worst of them is. */
export function toneOf(findings: readonly Finding[]): 'good' | 'warn' | 'bad' {
  if (findings.length === 0) return 'good';
  return findings.some(({ outcome }) => outcome === 'fail') ? 'bad' : 'warn';
}

/** What the page knows, as the rules want it. */
export function evidenceOf({ members, hubs, sessions, at }: Plane): Evidence {
  return { members, hubs, sessions, clocks: [{ of: 'this browser', aheadMs: 0 }], now: at };
}

/** Keeps the first of many findings of which one says it all. */
export function briefly<R extends Result>(results: readonly R[]): R[] {
  const groups = new Map<string, R[]>();
  for (const result of results) {
    const key = [result.check, result.outcome, result.todo].join('\0');
    const group = groups.get(key);
    if (group) group.push(result);
    else groups.set(key, [result]);
  }
  return [...groups.values()].flatMap((group) => {
    const rest = group.slice(MOST_ALIKE);
    const [first] = rest;
    const more = first && {
      ...first,
      about: `${rest.length.toLocaleString('en')} more`,
      detail: `as ${first.about}, which ${first.detail}`,
    };
    return more ? [...group.slice(0, MOST_ALIKE), more] : group;
  });
}

import { type Evidence, type Finding, findingsIn, judge, type Loss, lost } from '@isthmus/findings';
import type { Role } from '@isthmus/proto/admin-enums';
import { CONSOLE } from '../defaults.ts';
import type { Plane } from './plane.ts';

/** Returns what is wrong with the plane, failures first: by the rules of `isthmus check`. */
export function findingsOf(plane: Plane): Finding[] {
  return plane.at === 0 ? [] : briefly(findingsIn(judge(evidenceOf(plane))));
}

/** The gateways, hubs or agents that went away without a word and have not come back. */
export function lostOf(plane: Plane, role: Role): Loss[] {
  return lost(evidenceOf(plane), role);
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
function evidenceOf({ members, hubs, sessions, at }: Plane): Evidence {
  return { members, hubs, sessions, clocks: [{ of: 'this browser', aheadMs: 0 }], now: at };
}

/** Keeps the first of many findings of which one says it all. */
function briefly(findings: readonly Finding[]): Finding[] {
  const alike = Map.groupBy(findings, ({ check, outcome, todo }) => [check, outcome, todo].join('\0'));
  return [...alike.values()].flatMap((group) => {
    const rest = group.slice(CONSOLE.alike);
    const [first] = rest;
    const more = first && {
      ...first,
      about: `${rest.length.toLocaleString('en')} more`,
      detail: `as ${first.about}, which ${first.detail}`,
    };
    return more ? [...group.slice(0, CONSOLE.alike), more] : group;
  });
}

import type { Style } from '../output/style.ts';
import { plural } from '../output/units.ts';

export type Outcome = 'pass' | 'warn' | 'fail';

/** The result of one check. */
export interface Result {
  /** Kind of check: certificates, socket, redis, members, clocks, versions, config, tenants, links, ports, agents, dials. */
  readonly check: string;
  /** What was checked: a file, a member, an agent. */
  readonly about: string;
  readonly outcome: Outcome;
  readonly detail: string;
  /** What to do. Set unless it passed. */
  readonly todo?: string;
}

/** Makes the results of one kind of check. */
export interface Report {
  pass(about: string, detail: string): Result;
  warn(about: string, detail: string, todo: string): Result;
  fail(about: string, detail: string, todo: string): Result;
}

export function reportOf(check: string): Report {
  return {
    pass: (about, detail) => ({ check, about, outcome: 'pass', detail }),
    warn: (about, detail, todo) => ({ check, about, outcome: 'warn', detail, todo }),
    fail: (about, detail, todo) => ({ check, about, outcome: 'fail', detail, todo }),
  };
}

export interface CheckView {
  readonly results: readonly Result[];
  readonly passed: number;
  readonly warned: number;
  readonly failed: number;
}

export function checkView(results: readonly Result[]): CheckView {
  const count = (outcome: Outcome) => results.filter((result) => result.outcome === outcome).length;
  return { results, passed: count('pass'), warned: count('warn'), failed: count('fail') };
}

const WORDS: Readonly<Record<Outcome, string>> = { pass: 'ok  ', warn: 'WARN', fail: 'FAIL' };

export function checkText({ results, passed, warned, failed }: CheckView, style: Style): string {
  const paint = { pass: style.good, warn: style.warning, fail: style.bad };
  const width = Math.max(0, ...results.map(({ check }) => check.length));
  const lines = results.map(({ check, about, outcome, detail, todo }) => {
    const head = `${paint[outcome](WORDS[outcome])}  ${check.padEnd(width)}  ${about}: ${detail}\n`;
    return todo === undefined ? head : `${head}${' '.repeat(width + 8)}-> ${todo}\n`;
  });
  const sum = `${plural(results.length, 'check')}: ${passed} passed, ${warned} warned, ${failed} failed`;
  return `${lines.join('')}\n${failed > 0 ? style.bad(sum) : style.good(sum)}\n`;
}

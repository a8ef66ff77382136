import type { Result } from '@isthmus/findings';
import type { Style } from '../output/style.ts';
import { plural } from '../output/units.ts';

export interface CheckView {
  readonly results: readonly Result[];
  readonly passed: number;
  readonly warned: number;
  readonly failed: number;
}

export function checkView(results: readonly Result[]): CheckView {
  const count = (outcome: Result['outcome']) => results.filter((result) => result.outcome === outcome).length;
  return { results, passed: count('pass'), warned: count('warn'), failed: count('fail') };
}

const WORDS: Readonly<Record<Result['outcome'], string>> = { pass: 'ok  ', warn: 'WARN', fail: 'FAIL' };

export function checkText({ results, passed, warned, failed }: CheckView, style: Style): string {
  const paint = { pass: style.good, warn: style.warning, fail: style.bad };
  const width = Math.max(0, ...results.map(({ check }) => check.length));
  const lines = results.map((result) => {
    const { check, about, outcome, detail } = result;
    const head = `${paint[outcome](WORDS[outcome])}  ${check.padEnd(width)}  ${about}: ${detail}\n`;
    return result.todo === undefined ? head : `${head}${' '.repeat(width + 8)}-> ${result.todo} (${result.docs})\n`;
  });
  const sum = `${plural(results.length, 'check')}: ${passed} passed, ${warned} warned, ${failed} failed`;
  return `${lines.join('')}\n${failed > 0 ? style.bad(sum) : style.good(sum)}\n`;
}

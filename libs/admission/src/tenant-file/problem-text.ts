import type { Problem } from './read.ts';

/** What is wrong, after the place in the file's content: `limits.tunnels: expected a number`. */
export function problemMessage({ at, message }: Pick<Problem, 'at' | 'message'>): string {
  return at === '' ? message : `${at}: ${message}`;
}

/** As compilers write it: `acme.yaml:3:5: limits.tunnels: expected a number`. */
export function problemText(path: string, problem: Problem): string {
  return `${path}:${problem.line}:${problem.column}: ${problemMessage(problem)}`;
}

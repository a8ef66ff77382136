import { EXIT, type ExitStatus } from '../exit.ts';
import type { Unanswered } from '../plane/member.ts';
import { plural } from './units.ts';

/** Lists the members that did not answer, to print below the answers. */
export function unansweredText(unanswered: readonly Unanswered[]): string {
  if (unanswered.length === 0) return '';
  const lines = unanswered.map(({ member, address, reason }) => {
    const at = address === '' || address === member ? '' : ` at ${address}`;
    return `  ${member}${at}: ${reason}`;
  });
  return `\n${plural(unanswered.length, 'member')} did not answer:\n${lines.join('\n')}\n`;
}

/** Something wrong takes precedence over a missing answer. */
export function statusOf(wrong: boolean, unanswered: readonly Unanswered[]): ExitStatus {
  if (wrong) return EXIT.wrong;
  return unanswered.length > 0 ? EXIT.unasked : EXIT.good;
}

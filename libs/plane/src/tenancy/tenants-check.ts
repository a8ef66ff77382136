import type { FileProblems } from '@isthmus/admission';
import { problemText } from '@isthmus/admission/basics';
import type { Check } from '@isthmus/service';

/** How many problems are listed one by one. */
const MOST_LISTED = 5;

/** Passes with problems too: one tenant's bad file must not make a server unready for the other tenants. */
export function tenantsCheck(inForce: number, problems: readonly FileProblems[]): Check {
  const listed = problems.slice(0, MOST_LISTED).map(({ path, problems: [first], kept }) => {
    const still = kept === undefined ? '' : ` (tenant ${kept} stays as it was)`;
    return `${first ? problemText(path, first) : path}${still}`;
  });
  const rest = problems.length - listed.length;
  const files = problems.length === 1 ? '1 file with problems' : `${problems.length} files with problems`;
  const detail = problems.length === 0 ? '' : `, ${files}: ${listed.join('; ')}${rest > 0 ? `; ${rest} more` : ''}`;
  return { name: 'tenants', ok: true, detail: `${inForce} in force${detail}` };
}

/** Adds why tenants' own ports and unix sockets are not open. The check still passes, because the other tenants are served. */
export function withUnopened(check: Check, unopened: readonly string[]): Check {
  if (unopened.length === 0) return check;
  const rest = unopened.length - MOST_LISTED;
  return {
    ...check,
    detail: `${check.detail}, not open: ${unopened.slice(0, MOST_LISTED).join('; ')}${rest > 0 ? `; ${rest} more` : ''}`,
  };
}

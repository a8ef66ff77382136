/** The longest id, tenant, zone or address that a peer may give itself, in characters: a DNS name, brackets and a port. */
const LONGEST_NAME = 264;

/** Control characters, ends of lines, and what turns the direction of text: in a terminal or a line of log they write another name. */
const UNPRINTABLE = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Whether text of a peer's can stand in a log or on a screen as it is. */
export function isPrintable(text: string): boolean {
  return text.search(UNPRINTABLE) === -1;
}

/** Text of a peer's that is shown all the same: what cannot stand there as its number (`\u{202e}`). */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

/** Whether a peer may call itself, or something of its own, so. */
export function isName(name: string): boolean {
  return name.length <= LONGEST_NAME && isPrintable(name);
}

/**
 * @param what it names, for the error: `agent id`
 * @throws Error that shows none of what it refuses
 */
export function checkName(what: string, name: string): string {
  if (isName(name)) return name;
  const { length } = name;
  if (length > LONGEST_NAME) throw new Error(`${what} of ${length} characters: at most ${LONGEST_NAME} are taken`);
  throw new Error(`${what} with control characters: only what can be printed is taken`);
}

/** The longest id, tenant, zone or address that a peer may use, in characters: enough for a DNS name, brackets and a port. */
const LONGEST_NAME = 264;

/** Control characters, line ends and changes of text direction. In a terminal or a log line they can make a name look like another. */
const UNPRINTABLE = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Returns whether a peer's text can be logged or shown unchanged. */
export function isPrintable(text: string): boolean {
  return text.search(UNPRINTABLE) === -1;
}

/** Makes a peer's text safe to log or show: replaces each unprintable character with its code point (`\u{202e}`). */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

/** Returns whether a peer may use this name. */
export function isName(name: string): boolean {
  return name.length <= LONGEST_NAME && isPrintable(name);
}

/**
 * Returns the name if a peer may use it.
 * @param what the kind of name, for the error: `agent id`
 * @throws Error whose message does not contain the name
 */
export function checkName(what: string, name: string): string {
  if (isName(name)) return name;
  const { length } = name;
  if (length > LONGEST_NAME) throw new Error(`${what} of ${length} characters: at most ${LONGEST_NAME} are taken`);
  throw new Error(`${what} with control characters: only what can be printed is taken`);
}

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

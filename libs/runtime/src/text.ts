/**
 * Control characters, line ends, and characters that hide or turn the text around them: marks of direction, joiners, tags. In a terminal or a
 * log line they can make a name look like another, or act.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu;

/** Returns whether a peer's text can be logged or shown unchanged. */
export function isPrintable(text: string): boolean {
  return text.search(UNPRINTABLE) === -1;
}

/** Makes a peer's text safe to log or show: replaces each unprintable character with its code point (`\u{202e}`). */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

/** Escapes what is unprintable in a JSON document, as JSON does (`\u202e`). Line ends stay: within texts they are escaped already. */
export function printableJson(document: string): string {
  return document.replaceAll(UNPRINTABLE, (found) => (found === '\n' ? found : escaped(found)));
}

/** As UTF-16 (RFC 8259, section 7). */
function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('');
}

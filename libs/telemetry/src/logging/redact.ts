const REDACTED = '[redacted]';

/** Keys of log fields whose values never appear. */
export const SECRET_KEYS = ['token', 'authorization', 'password', 'secret', 'key', 'privateKey', 'cookie'] as const;

const URL_PASSWORD = /(:\/\/[^\s/@:"']*):[^\s"']*@/g;

// What a secret looks like inside a text. The text may be a line of JSON: nothing matched reaches over a quote, and a
// line break in a PEM block may stand as a backslash and an n.
const SECRETS: readonly [RegExp, string][] = [
  [URL_PASSWORD, `$1:${REDACTED}@`],
  [/\b(Bearer|Basic)\s+[\w.~+/=-]+/gi, `$1 ${REDACTED}`],
  // A JSON web token: a service account's, without the word Bearer before it.
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, REDACTED],
  [/-----BEGIN ([A-Z ]*PRIVATE KEY)-----[^"]*?-----END \1-----/g, REDACTED],
];

/** A URL without its password: `redis://user:[redacted]@host`. Takes lists of URLs, and what is no URL at all, as well. */
export function redactUrl(url: string): string {
  return url.replace(URL_PASSWORD, `$1:${REDACTED}@`);
}

/** A text without the secrets that can be told by their looks: passwords in URLs, bearer tokens, JSON web tokens, private keys. */
export function redactText(text: string): string {
  return SECRETS.reduce((clean, [pattern, replacement]) => clean.replace(pattern, replacement), text);
}

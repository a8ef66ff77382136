import { HTTP_CREDENTIAL } from '@isthmus/tunnel';

const REDACTED = '[redacted]';

const URL_PASSWORD = /(:\/\/[^\s/@:"']*):[^\s"']*@/g;

const QUERY_PASSWORD = /([?&][\w-]*password=)[^&\s"']*/gi;

// A JSON field whose name says that its value is a secret. `tokenPath` or `keyFile` do not say so.
const SECRET_FIELD =
  /("(?:key|[^"]*(?:token|authorization|password|secret|cookie|private[_-]?key|api[_-]?key))":)"(?:[^"\\]|\\.)*"/gi;

// Secrets inside a text. The text may be part of a JSON line, so a match never crosses a quote, and a line of the text may start after
// a backslash and an n.
const SECRETS: readonly [RegExp, string][] = [
  [URL_PASSWORD, `$1:${REDACTED}@`],
  [QUERY_PASSWORD, `$1${REDACTED}`],
  [HTTP_CREDENTIAL, `$1 ${REDACTED}`],
  // A JSON web token, such as a service account's, without the word Bearer before it.
  [/eyJ[\w-]+\.[\w-]+\.[\w-]*/g, REDACTED],
  [/-----BEGIN ([A-Z ]*PRIVATE KEY)-----[^"]*?-----END \1-----/g, REDACTED],
];

/** Every match of the patterns above contains this. It replaces seven tests of a line by one, and hardly any line matches. */
const SUSPECT =
  /:\/\/|password=|(?:key|token|authorization|password|secret|cookie)":"|(?:bearer|basic)\s|eyj|-----begin/i;

/** Removes the password from a URL: `redis://user:[redacted]@host`. Also accepts lists of URLs, and text that is not a URL. */
export function redactUrl(url: string): string {
  return url.replace(URL_PASSWORD, `$1:${REDACTED}@`).replace(QUERY_PASSWORD, `$1${REDACTED}`);
}

/** Removes secrets from a JSON line: values of fields that are named like a secret, and anything that looks like one. */
export function redactLine(line: string): string {
  if (!SUSPECT.test(line)) return line;
  const clean = line.replace(SECRET_FIELD, `$1"${REDACTED}"`);
  return SECRETS.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), clean);
}

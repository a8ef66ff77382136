import { HTTP_CREDENTIAL } from '@isthmus/tunnel';

const REDACTED = '[redacted]';

const URL_PASSWORD = /(:\/\/[^\s/@:"']*):[^\s"']*@/g;

const QUERY_PASSWORD = /([?&][\w-]*password=)[^&\s"']*/gi;

// A field of a line of JSON whose name says that its value is a secret; `tokenPath` or `keyFile` say no such thing.
const SECRET_FIELD =
  /("(?:key|[^"]*(?:token|authorization|password|secret|cookie|private[_-]?key|api[_-]?key))":)"(?:[^"\\]|\\.)*"/gi;

// What a secret looks like inside a text. The text may stand in a line of JSON, so nothing that is matched reaches over a
// quote, and what begins a line may follow a backslash and an n.
const SECRETS: readonly [RegExp, string][] = [
  [URL_PASSWORD, `$1:${REDACTED}@`],
  [QUERY_PASSWORD, `$1${REDACTED}`],
  [HTTP_CREDENTIAL, `$1 ${REDACTED}`],
  // A JSON web token, such as a service account's, without the word Bearer before it.
  [/eyJ[\w-]+\.[\w-]+\.[\w-]*/g, REDACTED],
  [/-----BEGIN ([A-Z ]*PRIVATE KEY)-----[^"]*?-----END \1-----/g, REDACTED],
];

/** What each of the above needs to match at all, for one look at a line in place of seven: hardly any has it. */
const SUSPECT =
  /:\/\/|password=|(?:key|token|authorization|password|secret|cookie)":"|(?:bearer|basic)\s|eyj|-----begin/i;

/** A URL without its password: `redis://user:[redacted]@host`. Takes lists of URLs, and what is no URL at all, as well. */
export function redactUrl(url: string): string {
  return url.replace(URL_PASSWORD, `$1:${REDACTED}@`).replace(QUERY_PASSWORD, `$1${REDACTED}`);
}

/** A line of JSON without secrets: those of fields named as such, and those that can be told by their looks wherever they stand. */
export function redactLine(line: string): string {
  if (!SUSPECT.test(line)) return line;
  const clean = line.replace(SECRET_FIELD, `$1"${REDACTED}"`);
  return SECRETS.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), clean);
}

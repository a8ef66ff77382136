/** What follows the scheme's name where a sentence goes on: no credential is one of these words. */
const WORDS = [
  ...['access', 'and', 'are', 'auth', 'authentication', 'authorization', 'credential', 'credentials', 'expired'],
  ...['for', 'from', 'has', 'header', 'in', 'invalid', 'is', 'missing', 'must', 'not', 'of', 'or', 'rejected'],
  ...['required', 'scheme', 'that', 'to', 'token', 'tokens', 'was', 'with', 'without'],
].join('|');

/**
 * A credential of HTTP authentication (RFC 9110 section 11.4) in a text: the scheme is its first group. "Invalid bearer token" holds
 * none. In a line of JSON the scheme may follow a backslash and an n, so a word need not begin there.
 */
export const HTTP_CREDENTIAL = new RegExp(
  `(Bearer|Basic)\\s+(?!(?:${WORDS})(?:[.,:;!?)]*(?:[\\s"'\\\\]|$)|[,:;!?)]))[\\w.~+/=-]+`,
  'gi',
);

/** Words that follow "bearer" or "basic" in a sentence. No credential is one of them. */
const WORDS = [
  ...['access', 'and', 'are', 'auth', 'authentication', 'authorization', 'credential', 'credentials', 'expired'],
  ...['for', 'from', 'has', 'header', 'in', 'invalid', 'is', 'missing', 'must', 'not', 'of', 'or', 'rejected'],
  ...['required', 'scheme', 'that', 'to', 'token', 'tokens', 'was', 'with', 'without'],
].join('|');

/**
 * Matches a credential of HTTP authentication (RFC 9110 section 11.4) in a text. The first group is the scheme. "Invalid bearer token"
 * has no match. There is no word boundary before the scheme, because in a line of JSON it may follow a backslash and an n.
 */
export const HTTP_CREDENTIAL = new RegExp(
  `(Bearer|Basic)\\s+(?!(?:${WORDS})(?:[.,:;!?)]*(?:[\\s"'\\\\]|$)|[,:;!?)]))[\\w.~+/=-]+`,
  'gi',
);

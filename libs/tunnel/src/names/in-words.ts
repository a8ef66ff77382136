/**
 * Error texts of libraries that name their own options or source files, and what they mean. Operators have not read the libraries'
 * manuals.
 */
const PHRASES: readonly (readonly [said: RegExp, means: string])[] = [
  // ioredis
  [/Reached the max retries per request limit.*/s, 'the connection broke before an answer came'],
  [/Stream isn't writeable and enableOfflineQueue options is false\.?/, 'there is no connection'],
  [/^Connection is closed\.?$/, 'the connection is closed'],
  [/^Command timed out$/, 'no answer in time'],
  // grpc-js puts the last error in the middle of a list of what it tried.
  [/^.*Last error: (?:Error: )?/s, ''],
  [/\.? ?Resolution note:.*$/s, ''],
  [/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)/, ''],
  [/^No connection established$/, 'no connection'],
  [/Received RST_STREAM with code (\d+)/, 'the stream was reset, HTTP/2 code $1'],
  // OpenSSL: `C0F7:error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../deps/openssl/ssl/ssl3_record.c:355:`
  [
    /(?:write EPROTO )?(?:[\dA-F]{1,32}:)?error:[\dA-F]{8}:[^:]*:[^:]*:([^:]+)(?::[^\s:]+\.c:\d+:[^\n]*)?\n?/gs,
    'TLS: $1',
  ],
  [/TLS: wrong version number|TLS: packet length too long/, 'the other side speaks no TLS'],
  [/TLS: http request/, 'plain HTTP came where TLS is spoken'],
  [/TLS: no start line/, 'it holds no PEM text'],
  [/TLS: key values mismatch/, 'the key is not that of the certificate'],
  // Node and undici
  [
    /^Client network socket disconnected before secure TLS connection was established$/,
    'it ended amid the TLS handshake',
  ],
  [/^socket hang up$/, 'it ended the connection'],
];

/** The most characters of a text that are processed. A peer may have written it. */
const LONGEST_TEXT = 2000;

/** Returns an error's text for an operator. For an error that only wraps others, returns the text of the first of them. */
export function inWords(error: unknown): string {
  if (!(error instanceof Error)) return phrased(String(error));
  const [first] = error instanceof AggregateError ? error.errors : [];
  if (first !== undefined && error.message === '') return inWords(first);
  // undici's own message says nothing; its cause does.
  if (error.message === 'fetch failed' && error.cause !== undefined) return inWords(error.cause);
  return phrased(error.message) || error.name;
}

function phrased(text: string): string {
  return PHRASES.reduce((words, [said, means]) => words.replace(said, means), text.slice(0, LONGEST_TEXT)).trim();
}

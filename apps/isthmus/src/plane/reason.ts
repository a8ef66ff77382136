import { inWords } from '@isthmus/tunnel';

/** What to check first, by the error that ended the connection. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/ENOENT/, 'there is no such socket: does it run, and is this its --admin-uds-name?'],
  [/EACCES/, 'this user may not open the socket: run isthmus as the user of the program, or as root'],
  [/ECONNREFUSED/, 'nothing listens there: does it run, and is this its --admin-port?'],
  [/ENOTFOUND|EAI_AGAIN|Name resolution failed/, 'the name does not resolve here'],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, 'no route to it from here: run isthmus inside its network'],
  [/server's certificate .* not a trusted authority here/, 'its certificate is not from a CA in --ca'],
  [/server's certificate .* does not name/, 'its certificate is for another name'],
  [
    /certificate required|bad certificate|unknown ca|handshake failure|client certificate (of|was)|no client certificate|requires a client certificate/,
    'it requires a certificate from a CA that it trusts: --cert and --key',
  ],
  [/wrong version number|EPROTO|packet length too long/, 'it does not use TLS: leave out --ca'],
  [
    /ECONNRESET|Connection dropped|Failed to connect|socket hang up|Protocol error/,
    'it closed the connection: if it uses TLS, give --ca, --cert and --key',
  ],
];

/** Describes a failed call in one line, with what to check. */
export function reasonOf(error: unknown, timeoutMs: number): string {
  const details = (error as { details?: unknown }).details;
  const message = error instanceof Error ? error.message : String(error);
  const text = typeof details === 'string' && details !== '' ? details : message;
  if (isExpired(error, text)) return `no answer within ${timeoutMs / 1000} s: it hangs, or the network drops packets`;
  if (/UNIMPLEMENTED/.test(message) && /unknown method|does not implement/i.test(text)) {
    return 'it does not know this request: it runs an older version';
  }
  const told = inWords(text).replaceAll(/\s+/g, ' ');
  const hint = HINTS.find(([pattern]) => pattern.test(text))?.[1];
  if (told === '' || told === 'undefined') return 'no connection';
  return hint === undefined ? told : `${told} (${hint})`;
}

/** Whether a member finds fault with the request itself. Every other member would, too. */
export function isInvalid(error: unknown): boolean {
  return /INVALID_ARGUMENT/.test(String(error));
}

function isExpired(error: unknown, text: string): boolean {
  const name = (error as Error | undefined)?.name;
  return name === 'AbortError' || name === 'TimeoutError' || /DEADLINE_EXCEEDED|Deadline exceeded/i.test(text);
}

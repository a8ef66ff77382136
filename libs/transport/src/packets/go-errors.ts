import { DialError, type DialErrorCode } from '@isthmus/tunnel';

/**
 * The words of Go's net package in which a Go agent says why a dial failed, and what they mean. The first one that the text contains
 * decides. `i/o timeout` comes after `lookup`, because a resolver's timeout contains both.
 */
const GO_ERRORS: readonly (readonly [words: RegExp, code: DialErrorCode])[] = [
  [/connection refused|connection reset by peer/, 'connection_refused'],
  [/lookup .*(?:i\/o timeout|deadline exceeded)/, 'dns_timeout'],
  [/no such host|server misbehaving|lookup /, 'dns_error'],
  [/i\/o timeout|connection timed out|deadline exceeded/, 'connection_timeout'],
  [/no route to host|network is unreachable|host is down|network is down/, 'destination_ip_unroutable'],
  [/too many open files|cannot assign requested address|no buffer space/, 'connection_limit_reached'],
  [/missing address|missing port|too many colons|unknown network|unknown port|invalid port/, 'http_request_error'],
];

/** What says nothing about the destination: an agent without a free socket has sent nothing to it, and one without DNS does not know it. */
const RETRYABLE: readonly DialErrorCode[] = ['connection_limit_reached', 'dns_timeout'];

/** Returns the meaning of a Go agent's error text. */
export function refusal(text: string): DialError {
  const code = GO_ERRORS.find(([words]) => words.test(text))?.[1] ?? 'proxy_internal_error';
  return new DialError(code, text, { retryable: RETRYABLE.includes(code) });
}

/** Names of RFC 9209 section 2.3, as the plane's `Proxy-Status` says them, and one for a plane that could not be asked. */
export type DialErrorCode =
  | 'connection_refused'
  | 'connection_timeout'
  | 'destination_ip_unroutable'
  | 'dns_error'
  | 'dns_timeout'
  | 'destination_ip_prohibited'
  | 'http_request_denied'
  | 'http_request_error'
  | 'destination_unavailable'
  | 'connection_limit_reached'
  | 'connection_terminated'
  | 'proxy_internal_error'
  /** An answer that is none of the plane's: no HTTP, or no `Proxy-Status`. */
  | 'http_protocol_error'
  /** No gateway answered. `cause` has each one's error. */
  | 'gateway_unreachable'
  // A later plane may have others.
  | (string & {});

interface DialErrorOptions extends ErrorOptions {
  readonly status?: number;
  readonly retryable?: boolean;
  readonly retryAfter?: number | undefined;
  readonly traceId?: string | undefined;
}

/** A dial that failed. No byte of the caller has reached its destination. */
export class DialError extends Error {
  override readonly name = 'DialError';
  readonly code: DialErrorCode;
  /** The HTTP status of the answer; undefined if no gateway answered. */
  readonly status: number | undefined;
  /** Whether the same dial may succeed later, or elsewhere: its failure says nothing about the destination. */
  readonly retryable: boolean;
  /** Seconds to wait before that, as the gateway says. */
  readonly retryAfter: number | undefined;
  /** W3C trace id under which the plane's logs and traces have the dial. */
  readonly traceId: string | undefined;

  constructor(code: DialErrorCode, message: string, options: DialErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.status = options.status;
    this.retryable = options.retryable ?? false;
    this.retryAfter = options.retryAfter;
    this.traceId = options.traceId;
  }
}

/** What a gateway answered to CONNECT. */
export interface Answer {
  readonly status: number;
  /** The text after the status. May be empty. */
  readonly reason: string;
  /** By names in lower case; of a repeated field, the last. */
  readonly fields: ReadonlyMap<string, string>;
}

/** Returns undefined for what is no head of HTTP/1.1. */
export function readAnswer(head: string): Answer | undefined {
  const [statusLine = '', ...lines] = head.split('\r\n');
  const [, status, reason = ''] = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(statusLine) ?? [];
  if (status === undefined) return undefined;
  const fields = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  return { status: Number(status), reason, fields };
}

/** The parameters of `Proxy-Status` (RFC 9209) that say why. */
const PARAMETERS = /;\s*(error|details|trace-id)=(?:"((?:[^"\\]|\\.)*)"|([\w-]+))/g;

/** The failure that an answer tells of. @param gateway for texts */
export function refusalOf({ status, reason, fields }: Answer, gateway: string): DialError {
  const said = new Map<string, string>();
  for (const [, name = '', quoted, token] of (fields.get('proxy-status') ?? '').matchAll(PARAMETERS))
    said.set(name, quoted?.replace(/\\(.)/g, '$1') ?? token ?? '');
  const [code, details = reason] = [said.get('error'), said.get('details')];
  if (code === undefined && status === 403)
    return new DialError(
      'http_request_denied',
      `${gateway} takes no caller without its credential: ${status} ${reason}`,
      { status },
    );
  if (code === undefined) {
    const text = `${gateway} answered ${status} ${reason} without Proxy-Status: is it a gateway, and does another proxy stand before it?`;
    return new DialError('http_protocol_error', text, { status });
  }
  const seconds = fields.get('retry-after');
  return new DialError(code, details, {
    status,
    retryable: fields.get('isthmus-retryable') === '?1' || seconds !== undefined,
    retryAfter: seconds !== undefined && /^\d+$/.test(seconds) ? Number(seconds) : undefined,
    traceId: said.get('trace-id'),
  });
}

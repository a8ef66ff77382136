import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { DialError, type NotAuthorised, toldOf } from '@isthmus/tunnel';
import { RequestRefused } from './http1.ts';
import { tcpOf } from './socket-end.ts';

/** The error of a dial by a caller that may not dial. */
export function denied(why: Error): DialError {
  return new DialError('http_request_denied', toldOf(why), { cause: why });
}

/** What a caller shows in `Proxy-Authorization`, before anyone has verified it. */
export interface ProxyCredential {
  /** The user of Basic, which is the tenant's name. Unset with Bearer, or if it is empty. */
  readonly tenant?: string;
  readonly token: string;
}

/** Challenges of a 407 (RFC 7617, RFC 6750). Clients take the first scheme that they know. */
export const CHALLENGES = ['Basic realm="isthmus", charset="UTF-8"', 'Bearer realm="isthmus"'] as const;

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** The characters of a Bearer token (RFC 6750 section 2.1). */
const BEARER = /^[A-Za-z0-9._~+/-]+=*$/;

/**
 * Reads the values of a request's `Proxy-Authorization`. Returns undefined without one. No error quotes what it has read.
 * @throws RequestRefused if they are not one credential, or if it came over plain text
 */
export function credentialIn(values: readonly string[], socket: Socket): ProxyCredential | undefined {
  const [value, ...more] = values;
  if (value === undefined) return undefined;
  if (!(socket instanceof TLSSocket) && tcpOf(socket))
    throw new RequestRefused(
      403,
      'Proxy-Authorization came over plain text, where others can read it: use the https:// address of the TLS port, and make a new token',
      { code: 'http_request_denied' },
    );
  if (more.length > 0) throw new RequestRefused(400, 'there are several Proxy-Authorization: send one');
  const [, scheme = '', credential = ''] = /^(\S+)[ \t]+(\S+)$/.exec(value) ?? [];
  switch (scheme.toLowerCase()) {
    case 'basic':
      return basic(credential);
    case 'bearer':
      if (BEARER.test(credential)) return { token: credential };
      throw new RequestRefused(400, 'Proxy-Authorization: the Bearer token has characters that no token has');
    case '':
      throw new RequestRefused(400, 'Proxy-Authorization is not one scheme and one credential: send Basic or Bearer');
    default:
      throw new RequestRefused(407, 'Proxy-Authorization has a scheme that is not served: send Basic or Bearer', {
        code: 'http_request_denied',
      });
  }
}

function basic(credential: string): ProxyCredential {
  const text = BASE64.test(credential) ? utf8(Buffer.from(credential, 'base64')) : undefined;
  const colon = text?.indexOf(':') ?? -1;
  if (text === undefined || colon < 0)
    throw new RequestRefused(400, 'Proxy-Authorization: Basic is not the base64 of TENANT:TOKEN in UTF-8');
  const [tenant, token] = [text.slice(0, colon), text.slice(colon + 1)];
  return { token, ...(tenant !== '' && { tenant }) };
}

function utf8(bytes: Buffer): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The refusal of a caller that may try again with another token: 407, or 503 if nobody could judge this one. */
export function challenged(why: NotAuthorised): RequestRefused {
  return new RequestRefused(why.undecided ? 503 : 407, toldOf(why), { code: 'http_request_denied', cause: why });
}

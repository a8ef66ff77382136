import { type Field, Incoming } from '@isthmus/http2';

export interface RequestHead {
  readonly method: string;
  /** Empty of a CONNECT, which has none. */
  readonly path: string;
  /** All fields but HTTP/2's own. */
  readonly fields: readonly Field[];
}

/** @returns undefined when the request is malformed (RFC 9113 section 8.1.1) */
export function readRequest(section: readonly Field[]): { head: RequestHead; incoming: Incoming } | undefined {
  const request = Incoming.request(section);
  if (!request) return undefined;
  const { own, incoming } = request;
  const { ':method': method = '', ':path': path = '' } = own;
  return { head: { method, path, fields: section.filter(([name]) => !name.startsWith(':')) }, incoming };
}

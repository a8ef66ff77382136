import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';

/** The socket below a TLS socket. */
export function belowOf(socket: TLSSocket): Socket | undefined {
  return (socket as unknown as { readonly _parent?: Socket })._parent;
}

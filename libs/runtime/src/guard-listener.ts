import type { AddressInfo, Server } from 'node:net';
import { descriptors } from './descriptors.ts';

/**
 * Closes a listener while the process cannot open file descriptors, and reopens it on the same address. @returns a function that stops
 * the guard
 */
export function guardListener(
  server: Server,
  { address: host, port }: AddressInfo,
  failed: (error: Error) => void,
): () => void {
  server.on('error', failed);
  return descriptors.guard({
    get listening() {
      return server.listening;
    },
    close: () => void server.close(),
    open: () => void server.listen({ host, port }),
    failed,
  });
}

import type { AddressInfo, Server } from 'node:net';
import { descriptors } from '@isthmus/tunnel';
import type { Refused } from './bad-requests.ts';

/** Closes a listener while the process can open no file descriptor, and opens it again on the same address. @returns ends it */
export function guardListener(server: Server, { address: host, port }: AddressInfo, refused: Refused): () => void {
  server.on('error', (error) => refused('', error));
  return descriptors.guard({
    get listening() {
      return server.listening;
    },
    close: () => void server.close(),
    open: () => void server.listen({ host, port }),
  });
}

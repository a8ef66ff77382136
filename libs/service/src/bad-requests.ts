import { type Server, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { remoteOf } from '@isthmus/runtime';

/** Called with the remote address and the error when a connection was refused because it sent no valid request. */
export type Refused = (remote: string, error: Error) => void;

const STATUS: Readonly<Record<string, number>> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };

/** Answers invalid HTTP/1.1 requests with the matching status, as Node does, and reports them to `refused`. */
export function refuseBadRequests(server: Server, refused: Refused): void {
  server.on('clientError', (error: NodeJS.ErrnoException, stream) => {
    const socket = stream as Socket;
    const { code = '' } = error;
    // A client that resets its idle connection has asked for nothing.
    if (code !== 'ECONNRESET') refused(remoteOf(socket), error);
    const status = STATUS[code] ?? 400;
    if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
    socket.destroySoon();
  });
}

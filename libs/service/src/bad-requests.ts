import { type Server, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';

/** Told of a connection that was refused since it could not be understood: where it came from, and why. */
export type Refused = (remote: string, error: Error) => void;

const STATUS: Readonly<Record<string, number>> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };

/** Answers what is no HTTP/1.1 request with the status that says so, as Node does, and tells of it. */
export function refuseBadRequests(server: Server, refused: Refused): void {
  server.on('clientError', (error: NodeJS.ErrnoException, stream) => {
    const socket = stream as Socket;
    const { code = '' } = error;
    // A client that drops its idle connection with a reset has asked for nothing.
    if (code !== 'ECONNRESET') refused(remoteOf(socket), error);
    const status = STATUS[code] ?? 400;
    if (socket.writable) socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
    socket.destroySoon();
  });
}

export function remoteOf({ remoteAddress = '', remotePort = 0 }: Socket): string {
  return `${remoteAddress}:${remotePort}`;
}

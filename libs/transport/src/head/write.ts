import type { Socket } from 'node:net';

/** Resolves once the socket has taken the text. Until then, no HTTP/2 may start on it: Node ends the process. */
export function write(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

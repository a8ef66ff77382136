import { createServer, type Socket } from 'node:net';
import type { Scope } from '../harness/scope.ts';

/** Each dial leaves a port in TIME_WAIT for a minute. Every address has its own 28,000 ports. */
const ADDRESSES = 16;

/** What is dialled. It accepts, and ends when the other side does. */
export interface Target {
  /** The next address to dial, `host:port`. */
  next(): string;
}

export async function target(scope: Scope): Promise<Target> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).once('close', () => sockets.delete(socket));
    socket.resume();
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '0.0.0.0', resolve));
  const { port } = server.address() as { port: number };
  scope.defer(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  let dials = 0;
  return { next: () => `127.0.0.${1 + (dials++ % ADDRESSES)}:${port}` };
}

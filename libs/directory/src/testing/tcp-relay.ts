import { once } from 'node:events';
import { createServer, type Socket, connect as tcpConnect } from 'node:net';

/** A TCP relay to a local port. Its connections can be cut, blocked and delayed. */
export interface TcpRelay {
  readonly url: string;
  /** Delay of every chunk, in each direction, in milliseconds. */
  delayMs: number;
  /** Closes all connections, and accepts none until `restore()`. */
  cut(): void;
  restore(): void;
  close(): Promise<void>;
}

export async function relayTo(port: number): Promise<TcpRelay> {
  const sockets = new Set<Socket>();
  let open = true;
  const carry = (from: Socket, to: Socket) => {
    sockets.add(from);
    from.on('error', () => undefined);
    from.on('data', (chunk) => {
      if (relay.delayMs === 0) to.write(chunk);
      else setTimeout(() => to.destroyed || to.write(chunk), relay.delayMs);
    });
    from.on('close', () => {
      sockets.delete(from);
      to.destroy();
    });
  };
  const server = createServer((near) => {
    if (!open) return void near.destroy();
    const far = tcpConnect(port, '127.0.0.1');
    carry(near, far);
    carry(far, near);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const relay: TcpRelay = {
    url: `redis://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    delayMs: 0,
    cut() {
      open = false;
      for (const socket of sockets) socket.destroy();
    },
    restore() {
      open = true;
    },
    async close() {
      relay.cut();
      server.close();
      await once(server, 'close');
    },
  };
  return relay;
}

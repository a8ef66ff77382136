import { once } from 'node:events';
import { connect, createServer, type ListenOptions, type NetConnectOpts, type Server, type Socket } from 'node:net';
import type { Scope } from './scope.ts';

/** How often backends are asked whether they are ready, in milliseconds. */
const LOOK_MS = 500;
/** How long a backend may take to accept a connection, in milliseconds. */
const ACCEPT_MS = 2000;

/**
 * A load balancer of layer 4: gives each connection to the next backend in turn, or to the one after if that does not take it. Those that were
 * not ready when they were last asked come last. Ends with the scope.
 * @param isReady a backend of which it throws is not ready
 */
export async function balance<T extends NetConnectOpts>(
  scope: Scope,
  at: ListenOptions,
  backends: readonly T[],
  isReady?: (backend: T) => Promise<boolean>,
): Promise<Server> {
  const unready = new Set<T>();
  if (isReady) {
    const look = async (backend: T) => {
      const ready = await isReady(backend).catch(() => false);
      void (ready ? unready.delete(backend) : unready.add(backend));
    };
    await Promise.all(backends.map(look));
    const timer = setInterval(() => backends.forEach((backend) => void look(backend)), LOOK_MS);
    scope.defer(() => clearInterval(timer));
  }
  const sockets = new Set<Socket>();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    return socket.on('error', () => {}).once('close', () => sockets.delete(socket));
  };
  const forward = (near: Socket, [first, ...rest]: readonly T[]) => {
    if (!first || near.destroyed) return void near.destroy();
    const far = keep(connect({ ...first, allowHalfOpen: true, noDelay: true, timeout: ACCEPT_MS }));
    const next = () => forward(near, rest);
    far.once('close', next).once('timeout', () => far.destroy());
    far.once('connect', () => {
      far.off('close', next).setTimeout(0);
      if (near.destroyed) return void far.destroy();
      near.pipe(far).pipe(near);
      near.once('close', () => far.destroy());
      far.once('close', () => near.destroy());
    });
  };
  let turn = 0;
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const from = turn++ % backends.length;
    const inTurn = [...backends.slice(from), ...backends.slice(0, from)];
    forward(keep(near), [
      ...inTurn.filter((each) => !unready.has(each)),
      ...inTurn.filter((each) => unready.has(each)),
    ]);
  });
  server.listen(at);
  await once(server, 'listening');
  scope.defer(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return server;
}

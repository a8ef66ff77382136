import { connect, createServer, type Socket } from 'node:net';
import { type Program, type Scope, tempDir } from '../harness/index.ts';

/** How often a balancer checks readiness, in milliseconds. */
const LOOK_EVERY = 200;

export interface Backend {
  readonly uds: string;
  /** The program whose readiness is checked. Unset: the backend always counts as ready. */
  readonly program?: () => Program;
}

/**
 * A layer-4 balancer: one unix socket in front of several. Each connection goes to the next backend in turn, or to the one after if that
 * refuses.
 */
export async function balancer(scope: Scope, backends: readonly Backend[]): Promise<{ readonly uds: string }> {
  const sockets = new Set<Socket>();
  const unready = new Set<Backend>();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  };
  const look = async (backend: Backend) => {
    const answer = await backend
      .program?.()
      .get('/readyz')
      .catch(() => undefined);
    if (answer?.status === 200) unready.delete(backend);
    else unready.add(backend);
  };
  let turn = 0;
  const forward = (socket: Socket, order: readonly Backend[]) => {
    const [first, ...rest] = order;
    if (!first) return void socket.destroy();
    const backend = connect({ path: first.uds, allowHalfOpen: true });
    keep(backend);
    const next = () => forward(socket, rest);
    backend.once('error', next);
    backend.once('connect', () => {
      backend.off('error', next);
      socket.pipe(backend).pipe(socket);
      socket.once('close', () => backend.destroy());
      backend.once('close', () => socket.destroy());
    });
  };
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    keep(socket);
    const start = turn++ % backends.length;
    const order = [...backends.slice(start), ...backends.slice(0, start)];
    forward(socket, [
      ...order.filter((backend) => !unready.has(backend)),
      ...order.filter((backend) => unready.has(backend)),
    ]);
  });
  const looked = backends.filter(({ program }) => program);
  const timer = setInterval(() => looked.forEach((backend) => void look(backend)), LOOK_EVERY);
  const uds = `${await tempDir(scope)}/balancer.sock`;
  await new Promise<void>((resolve) => server.listen(uds, resolve));
  scope.defer(() => {
    clearInterval(timer);
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { uds };
}

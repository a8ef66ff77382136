import { once } from 'node:events';
import { request } from 'node:https';
import { connect, createServer, type Socket } from 'node:net';
import type { Scope } from '../harness/index.ts';

const CHECK_EVERY_MS = 500;
const CHECK_MS = 2000;

export type Check = (host: string, port: number) => Promise<boolean>;

/**
 * A load balancer as control-plane nodes have: it gives connections to its hosts in turn, to those that passed their last check. The port
 * is the same here and there. Ends with its scope.
 */
export async function balance(
  scope: Scope,
  address: string,
  port: number,
  hosts: readonly string[],
  check: Check,
): Promise<void> {
  const healthy = new Set<string>();
  const look = () =>
    Promise.all(hosts.map(async (host) => void ((await check(host, port)) ? healthy.add(host) : healthy.delete(host))));
  await look();
  const timer = setInterval(() => void look(), CHECK_EVERY_MS);
  let turn = 0;
  const server = createServer({ allowHalfOpen: true }, (caller) => {
    turn += 1;
    const inTurn = hosts.map((_, index) => hosts[(turn + index) % hosts.length] ?? '');
    void forward(
      caller,
      inTurn.filter((host) => healthy.has(host)),
      port,
    );
  });
  server.listen(port, address);
  await once(server, 'listening');
  scope.defer(() => {
    clearInterval(timer);
    server.close();
  });
}

/** Carries a connection to the first of the hosts that takes it. */
async function forward(caller: Socket, hosts: readonly string[], port: number): Promise<void> {
  caller.on('error', () => {});
  for (const host of hosts) {
    const socket = await open(host, port);
    if (!socket) continue;
    caller.pipe(socket).pipe(caller);
    caller.once('close', () => socket.destroy());
    socket.once('close', () => caller.destroy());
    return;
  }
  caller.destroy();
}

async function open(host: string, port: number): Promise<Socket | undefined> {
  const socket = connect({ host, port, allowHalfOpen: true, timeout: CHECK_MS, noDelay: true });
  socket.on('error', () => {});
  socket.once('timeout', () => socket.destroy());
  const opened = await new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true));
    socket.once('close', () => resolve(false));
  });
  socket.setTimeout(0);
  return opened ? socket : undefined;
}

/** A server says on its health port that it is alive. (It is ready only once it has agents, which come through the balancer.) */
export async function serverAlive(host: string): Promise<boolean> {
  const answer = await fetch(`http://${host}:8134/healthz`, { signal: AbortSignal.timeout(CHECK_MS) }).catch(
    () => null,
  );
  await answer?.text();
  return answer?.status === 200;
}

/** An API server says that it is ready: before that it takes connections, and refuses what is asked. */
export function apiServerReady(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ host, port, path: '/readyz', rejectUnauthorized: false, agent: false, timeout: CHECK_MS });
    asked.once('response', (answer) => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    asked.once('timeout', () => asked.destroy(new Error('no answer')));
    asked.once('error', () => resolve(false));
    asked.end();
  });
}

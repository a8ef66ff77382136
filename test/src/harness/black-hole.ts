import { connect, type Socket } from 'node:net';
import { authority } from './destination.ts';
import { startCommand } from './program.ts';
import { onDeno } from './runtime.ts';
import type { Scope } from './scope.ts';

const LISTENER = `
const net = await import('node:net');
const [host, port, backlog] = process.argv.slice(-3);
const server = net.createServer((socket) => socket.on('error', () => {}).resume());
server.listen({ host, port, backlog: Number(backlog) }, () => console.log('port=' + server.address().port));
`;
/** The kernel accepts a connection over loopback in well under a millisecond. */
const SILENCE_MS = 250;

/** `host:port` on loopback that never answers a SYN. */
export async function blackHole(scope: Scope): Promise<string> {
  const { port } = await silentListener(scope);
  return authority('127.0.0.1', port);
}

/**
 * Listens on loopback, and answers no SYN until it wakes. It is a stopped listener (SIGSTOP) whose accept queue is full, so the kernel drops
 * further SYNs.
 * @param backlog how many connections it has room for at once, when it wakes
 */
export async function silentListener(scope: Scope, { host = '127.0.0.1', port: wanted = 0, backlog = 1 } = {}) {
  const evaluate = onDeno ? (['eval', LISTENER] as const) : (['--input-type=module', '-e', LISTENER] as const);
  const listener = startCommand(scope, [process.execPath, ...evaluate, host, `${wanted}`, `${backlog}`]);
  const port = Number((await listener.waitForLine(/^port=\d+$/)).slice('port='.length));
  listener.signal('SIGSTOP');
  while (await isAccepted(scope, host, port));
  return { port, wake: () => listener.signal('SIGCONT') };
}

/** Connects, and returns whether the kernel accepted. The socket stays open until the scope ends. */
function isAccepted(scope: Scope, host: string, port: number): Promise<boolean> {
  const socket: Socket = connect(port, host);
  scope.defer(() => socket.destroy());
  return new Promise((resolve, reject) => {
    // An answer of the kernel is handled before an immediate runs, even if this process was held up for that long.
    const timer = setTimeout(() => setImmediate(resolve, false), SILENCE_MS);
    socket.once('error', reject).once('connect', () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

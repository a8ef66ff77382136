import { connect, type Socket } from 'node:net';
import { authority } from './destination.ts';
import { startCommand } from './program.ts';
import { onDeno } from './runtime.ts';
import type { Scope } from './scope.ts';

const LISTENER = `
const net = await import('node:net');
const server = net.createServer().listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => console.log('port=' + server.address().port));
`;
/** A connection over loopback that the kernel accepts is there in well under a millisecond. */
const SILENCE_MS = 250;

/**
 * `host:port` on loopback that answers a SYN with nothing: a listener that was stopped (SIGSTOP) and whose accept queue
 * is full, for then the kernel drops what else comes.
 */
export async function blackHole(scope: Scope): Promise<string> {
  const evaluate = onDeno ? (['eval', LISTENER] as const) : (['--input-type=module', '-e', LISTENER] as const);
  const listener = startCommand(scope, [process.execPath, ...evaluate]);
  const port = Number((await listener.waitForLine(/^port=\d+$/)).slice('port='.length));
  listener.signal('SIGSTOP');
  while (await isAccepted(scope, port));
  return authority('127.0.0.1', port);
}

/** Connects, and says whether the kernel let it; the socket stays until the scope ends. */
function isAccepted(scope: Scope, port: number): Promise<boolean> {
  const socket: Socket = connect(port, '127.0.0.1');
  scope.defer(() => socket.destroy());
  return new Promise((resolve, reject) => {
    // What the kernel said meanwhile is heard before an immediate runs, also where this process was held up for as long.
    const timer = setTimeout(() => setImmediate(resolve, false), SILENCE_MS);
    socket.once('error', reject).once('connect', () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

import { connect, type Socket } from 'node:net';
import { type Program, type Scope, startCommand } from '../harness/index.ts';

const BACKLOG = 256;
const LISTENER = `
const net = await import('node:net');
const [host, backlog] = [process.argv[1], Number(process.argv[2])];
const server = net.createServer((socket) => socket.on('error', () => {}).resume());
server.listen({ host, port: 0, backlog }, () => console.log('port=' + server.address().port));
`;
/** The kernel accepts a connection over loopback in well under a millisecond. */
const SILENCE_MS = 250;

/**
 * A destination that does not answer a SYN until it is released: a stopped process (SIGSTOP) whose accept queue is full. Once
 * released, it has room for BACKLOG connections at once.
 */
export class LateListener {
  readonly authority: string;
  readonly #program: Program;
  readonly #fill: readonly Socket[];

  private constructor(authority: string, program: Program, fill: readonly Socket[]) {
    this.authority = authority;
    this.#program = program;
    this.#fill = fill;
  }

  static async start(scope: Scope, host: string): Promise<LateListener> {
    const command = [process.execPath, '--input-type=module', '-e', LISTENER, host, String(BACKLOG)] as const;
    const program = startCommand(scope, command);
    const port = Number((await program.waitForLine(/^port=\d+$/)).slice('port='.length));
    program.signal('SIGSTOP');
    const fill: Socket[] = [];
    scope.defer(() => {
      for (const socket of fill) socket.destroy();
    });
    for (let accepted = true; accepted; ) {
      const socket = connect(port, host).on('error', () => {});
      fill.push(socket);
      accepted = await isAccepted(socket);
    }
    return new LateListener(`${host}:${port}`, program, fill);
  }

  release(): void {
    this.#program.signal('SIGCONT');
    for (const socket of this.#fill) socket.destroy();
  }
}

function isAccepted(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => {
    // What has come while this process did not run is read before a `setImmediate`. Otherwise a busy machine would leave the queue half empty.
    const timer = setTimeout(() => setImmediate(() => resolve(!socket.connecting)), SILENCE_MS);
    socket.once('connect', () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { bind } from '@isthmus/runtime';
import { inWords, Splice, type TunnelEnd } from '@isthmus/tunnel';
import { Argument } from 'commander';
import { type Call, command, durationOption } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { EXIT, Failure } from '../output.ts';

interface Options {
  readonly wait: number;
}

export const hold = command({
  name: 'hold',
  summary: 'Listen on a unix socket for a server that restarts: connections wait for it',
  details:
    'For API servers that dial by HTTP CONNECT over a unix socket: they fail at once while nobody listens, and a static pod takes the kubelet 10 s to replace. Runs beside the server until SIGTERM; then it accepts no more connections, and ends with the last.',
  args: [
    new Argument('<socket>', 'what API servers connect to'),
    new Argument('<server>', "the server's own socket, its --uds-name"),
  ],
  options: [durationOption('--wait <duration>', 'how long a connection waits for the server', ISTHMUS.holdWaitMs)],
  examples: [
    {
      line: 'hold /run/k/api.sock /run/k/server.sock',
      does: 'the API server dials api.sock, proxy-server has server.sock',
    },
  ],
  async run({ args: [path = '', server = ''], options, terminal }: Call<Options>) {
    const tell = (text: string) => terminal.err(`isthmus: ${text}\n`);
    const stop = await HeldSocket.open({ path, server, waitMs: options.wait, tell }).catch((error: unknown) => {
      throw new Failure(EXIT.wrong, inWords(error as Error));
    });
    tell(`${path} is open: connections go to ${server}`);
    if (!terminal.interrupted.aborted) await once(terminal.interrupted, 'abort');
    await stop();
    return EXIT.good;
  },
});

interface HeldSocketOptions {
  /** The socket that callers connect to. */
  readonly path: string;
  /** The server's own socket. */
  readonly server: string;
  /** How long a connection waits for the server, in milliseconds. */
  readonly waitMs: number;
  /** Called when something changes that an operator wants to know. */
  readonly tell: (text: string) => void;
}

/**
 * Listens on a unix socket in the place of a server that restarts, and carries each connection to the server's own socket. While nobody
 * listens there, connections wait. An API server that dials by HTTP CONNECT fails at once where nobody listens; here it never meets that.
 */
export class HeldSocket {
  readonly #options: HeldSocketOptions;
  #waiting = 0;
  /** Resolves once the server listens again, or nobody waits any more. Set while it is looked for. */
  #back: Promise<void> | undefined;

  private constructor(options: HeldSocketOptions) {
    this.#options = options;
  }

  /** @returns what stops it: it accepts no more connections then, and resolves when the last has ended */
  static async open(options: HeldSocketOptions): Promise<() => Promise<void>> {
    const held = new HeldSocket(options);
    const server = net.createServer({ allowHalfOpen: true }, (caller) => void held.#take(caller));
    const bound = await bind(server, {
      at: { path: options.path, deleteExisting: true },
      // The file's permissions decide who connects.
      door: { enter: () => true },
      failed: (error) => options.tell(`${options.path}: ${error.message}`),
    });
    return async () => {
      await bound.stop();
      await bound.idle;
    };
  }

  async #take(caller: Socket): Promise<void> {
    caller.on('error', () => {});
    const server = await this.#connect(caller);
    if (!server) return void caller.destroy();
    server.on('error', () => {});
    await new Splice(endOf(caller), endOf(server)).done;
  }

  /** Resolves with a connection to the server; with undefined if the caller has gone, or has waited long enough. */
  async #connect(caller: Socket): Promise<Socket | undefined> {
    const { server, waitMs, tell } = this.#options;
    const deadline = performance.now() + waitMs;
    this.#waiting += 1;
    try {
      for (;;) {
        const socket = await connectionTo(server);
        if (socket instanceof net.Socket) return socket;
        if (caller.destroyed) return undefined;
        const left = deadline - performance.now();
        if (left <= 0) {
          tell(`no server at ${server} for ${waitMs / 1000} s (${socket}): a connection is closed`);
          return undefined;
        }
        this.#back ??= this.#lookForServer(socket);
        await Promise.race([this.#back, delay(left, undefined, { ref: false })]);
      }
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Looks on behalf of all that wait, so that their number costs nothing. */
  async #lookForServer(reason: string): Promise<void> {
    const { server, tell } = this.#options;
    const since = performance.now();
    tell(`no server at ${server} (${reason}): connections wait`);
    while (this.#waiting > 0) {
      await delay(ISTHMUS.holdLookMs);
      const socket = await connectionTo(server);
      if (!(socket instanceof net.Socket)) continue;
      socket.destroy();
      tell(`${server} answers after ${((performance.now() - since) / 1000).toFixed(1)} s`);
      break;
    }
    this.#back = undefined;
  }
}

function endOf(stream: Socket): TunnelEnd {
  return { stream, halfOpen: true, abort: () => stream.destroy() };
}

/** Resolves with a connection, or with the system's error: nobody listens there, or the queue of who does is full. */
function connectionTo(path: string): Promise<Socket | string> {
  return new Promise((resolve) => {
    const socket = net.connect({ path, allowHalfOpen: true });
    socket.once('connect', () => resolve(socket.removeAllListeners('error')));
    socket.once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message));
  });
}

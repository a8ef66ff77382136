import { createServer, type Server, type Socket } from 'node:net';
import { type Destination, echo, type Scope } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { FRAME_EVERY, FrameReader, frame } from './frames.ts';

/** The destination's end of a long tunnel that ended. */
export interface TargetEnd {
  readonly tunnel: number;
  readonly at: number;
}

interface Serving {
  readonly tunnel: number;
  readonly reader: FrameReader;
  sent: number;
}

/** What the load dials: an echo for short dials, and for long tunnels a server that sends frames and compares those it receives. */
export class Targets implements AsyncDisposable {
  readonly echo: Destination;
  readonly ends: TargetEnd[] = [];
  readonly wrong: string[] = [];
  framesPort = 0;
  readonly #server: Server;
  readonly #serving = new Map<Socket, Serving>();
  readonly #timer: NodeJS.Timeout;

  private constructor(echo: Destination) {
    this.echo = echo;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#serve(socket));
    this.#timer = setInterval(() => this.#send(), FRAME_EVERY);
  }

  static async listen(scope: Scope): Promise<Targets> {
    const targets = scope.use(new Targets(await echo(scope)));
    const server = targets.#server;
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '0.0.0.0', resolve));
    targets.framesPort = (server.address() as { port: number }).port;
    return targets;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#serving.keys()) socket.destroy();
    await closed;
  }

  #serve(socket: Socket): void {
    const tunnel = tunnelOf(socket);
    const serving: Serving = { tunnel, reader: new FrameReader(tunnel, 'up'), sent: 0 };
    this.#serving.set(socket, serving);
    socket.on('data', (chunk: Buffer) => this.#take(socket, serving, chunk));
    socket.on('error', () => {});
    const over = () => {
      if (!this.#serving.delete(socket)) return;
      this.ends.push({ tunnel, at: clock() });
      socket.destroy();
    };
    socket.once('end', over).once('close', over);
  }

  #take(socket: Socket, serving: Serving, chunk: Buffer): void {
    const { reader, tunnel } = serving;
    const problem = reader.take(chunk);
    if (problem) {
      this.wrong.push(problem);
      socket.destroy();
    } else if (reader.finished) {
      socket.end(frame(tunnel, 'down', serving.sent++, true));
    }
  }

  #send(): void {
    for (const [socket, serving] of this.#serving) {
      if (serving.reader.finished || socket.writableNeedDrain) continue;
      socket.write(frame(serving.tunnel, 'down', serving.sent++, false));
    }
  }
}

/** Returns the number of a tunnel, from the address that was dialled: 127.0.1.(n + 1). */
function tunnelOf({ localAddress = '' }: Socket): number {
  return Number(localAddress.split('.').at(-1)) - 1;
}

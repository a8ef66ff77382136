import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import net, { type AddressInfo, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Identity } from '@isthmus/certificates/testing';
import type { Scope } from './scope.ts';

/** An HTTP proxy that serves CONNECT. It leads every name to 127.0.0.1, on the port that it was asked for. */
export class ConnectProxy implements AsyncDisposable {
  /** The targets that it was asked for, in order. */
  readonly asked: string[] = [];
  /** Answers a request with something else, if it returns a head. */
  refuses: (request: IncomingMessage) => string | undefined = () => undefined;
  readonly #server: Server;
  readonly #sockets = new Set<Socket | Duplex>();

  /** @param identity its certificate, for a proxy that is reached over TLS */
  constructor(identity?: Identity) {
    const pair = identity && { cert: readFileSync(identity.cert), key: readFileSync(identity.key) };
    this.#server = pair ? https.createServer(pair) : http.createServer();
    this.#server.on('connection', (socket: Socket) => this.#hold(socket));
    this.#server.on('connect', (request: IncomingMessage, socket: Duplex) => this.#connect(request, socket));
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async listen(): Promise<this> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return this;
  }

  /** Ends all connections, and keeps listening. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.cut();
  }

  #connect(request: IncomingMessage, socket: Duplex): void {
    const target = request.url ?? '';
    this.asked.push(target);
    const refusal = this.refuses(request);
    if (refusal !== undefined) {
      socket.end(`${refusal}\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const server = net.connect({ host: '127.0.0.1', port: Number(target.slice(target.lastIndexOf(':') + 1)) });
    this.#hold(server);
    socket.on('error', () => server.destroy());
    server.once('connect', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      server.pipe(socket).pipe(server);
    });
    server.once('close', () => socket.destroy());
    socket.once('close', () => server.destroy());
  }

  #hold(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => this.#sockets.delete(socket));
  }
}

export async function connectProxy(scope: Scope, identity?: Identity): Promise<ConnectProxy> {
  return scope.use(await new ConnectProxy(identity).listen());
}

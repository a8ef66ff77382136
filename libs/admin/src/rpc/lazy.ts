import type { Socket } from 'node:net';
import { inWords } from '@isthmus/tunnel';

/** Serves HTTP/2 connections that the admin port has accepted. */
export interface RpcServer {
  accept(socket: Socket): void;
  /** Ends every call. */
  close(): void;
}

/** Loads an RPC server at the first connection. Most processes never see one, and the libraries take memory and time. */
export class LazyRpc {
  readonly #load: () => Promise<RpcServer>;
  readonly #warn: (message: string) => void;
  #server: Promise<RpcServer> | undefined;

  constructor(load: () => Promise<RpcServer>, warn: (message: string) => void) {
    this.#load = load;
    this.#warn = warn;
  }

  accept(socket: Socket): void {
    this.#server ??= this.#load();
    this.#server
      .then((server) => {
        if (!socket.destroyed) server.accept(socket);
      })
      // Only this client is affected.
      .catch((error) => {
        this.#warn(`the admin RPC cannot serve a client: ${inWords(error)}`);
        socket.destroy();
      });
  }

  /** Stops the server. The caller closes the connections. */
  async close(): Promise<void> {
    const server = await this.#server?.catch(() => undefined);
    server?.close();
  }
}

import { connect, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import type { AdminBackend } from './admin-backend.ts';
import type { AdminRpc } from './admin-rpc.ts';

export interface RpcForwardOptions {
  /** What the health service says. */
  readonly ready: () => boolean;
  readonly warn: (message: string) => void;
}

/**
 * Hands connections to the admin RPC's own server, through its unix socket. The first one loads and starts it: most
 * processes never see one, and the server's libraries take 6 MB and 0.15 s (Node 20, the rest of a program being loaded).
 */
export class RpcForward {
  readonly #backend: AdminBackend;
  readonly #options: RpcForwardOptions;
  #started: Promise<AdminRpc> | undefined;
  #closed = false;

  constructor(backend: AdminBackend, options: RpcForwardOptions) {
    this.#backend = backend;
    this.#options = options;
  }

  /** Joins a connection with one to the RPC's server: the end or the failure of either ends both. */
  take(socket: Socket): void {
    this.#rpc().then(
      ({ path }) => {
        if (socket.destroyed) return;
        const inner = connect(path);
        pipeline(socket, inner, socket, () => inner.destroy());
      },
      (error) => {
        this.#options.warn(`the admin RPC cannot start: ${reason(error)}`);
        socket.destroy();
      },
    );
  }

  /** Ends the RPC's server. The connections are the caller's to end. */
  async close(): Promise<void> {
    this.#closed = true;
    const rpc = await this.#started?.catch(() => undefined);
    await rpc?.close();
  }

  /** The server. After a failed start the next connection tries again. */
  #rpc(): Promise<AdminRpc> {
    this.#started ??= this.#start().catch((error) => {
      this.#started = undefined;
      throw error;
    });
    return this.#started;
  }

  async #start(): Promise<AdminRpc> {
    if (this.#closed) throw new Error('the admin port is closed');
    const { serveRpc } = await import('./admin-rpc.ts');
    return serveRpc(this.#backend, this.#options.ready);
  }
}

function reason(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return `${message} (it needs a directory for temporary files that it may write to, such as TMPDIR)`;
}

import type { Socket } from 'node:net';
import { readProxyHeader } from '@isthmus/runtime';
import type { EndUser } from '@isthmus/tunnel';
import { SocketEnd } from '../socket-end.ts';
import { type ClientHello, ClientHelloReader, HANDSHAKE, UNREADABLE } from '../tls/client-hello.ts';

/**
 * The end of a tunnel at a socket of a client, or of its API server, which finds the ClientHello that passes first. Nothing waits for it. A connection
 * that came back has one PROXY header for each time round, if the API server wants them.
 */
export class HelloEnd extends SocketEnd {
  readonly #way: 'from' | 'to';
  readonly #found: (hello: ClientHello) => void;
  /** Unset once it is known whether there is one. */
  #reader: ClientHelloReader | undefined = new ClientHelloReader();
  /** The beginning of a header. Unset once they are over. */
  #ahead: Buffer | undefined = Buffer.alloc(0);

  /** @param way of the hello: from a client, or to an API server */
  constructor(socket: Socket, way: 'from' | 'to', found: (hello: ClientHello) => void) {
    super(socket);
    this.#way = way;
    this.#found = found;
  }

  override use(user: EndUser, tenant: string): void {
    const looking: EndUser = {
      onData: (bytes) => {
        this.#look(bytes);
        user.onData(bytes);
      },
      onDrain: () => user.onDrain(),
      onEnd: () => user.onEnd(),
      onClose: (failure) => user.onClose(failure),
    };
    super.use(this.#way === 'to' ? user : looking, tenant);
  }

  override write(bytes: Uint8Array): boolean {
    if (this.#way === 'to') this.#look(bytes);
    return super.write(bytes);
  }

  #look(bytes: Uint8Array): void {
    if (!this.#reader) return;
    const rest = this.#behindHeaders(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length));
    const hello = rest && this.#reader.read(rest);
    if (hello === undefined) return;
    this.#reader = undefined;
    if (hello !== UNREADABLE) this.#found(hello);
  }

  /** @returns undefined while more bytes are needed */
  #behindHeaders(chunk: Buffer): Buffer | undefined {
    if (!this.#ahead) return chunk;
    let rest = Buffer.concat([this.#ahead, chunk]);
    try {
      while (rest[0] !== HANDSHAKE) {
        const header = readProxyHeader(rest);
        this.#ahead = rest;
        if (!header) return undefined;
        rest = rest.subarray(header.length);
      }
    } catch {
      // It begins with neither.
    }
    this.#ahead = undefined;
    return rest;
  }
}

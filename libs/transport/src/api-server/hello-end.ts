import type { Socket } from 'node:net';
import type { EndUser } from '@isthmus/tunnel';
import { SocketEnd } from '../socket-end.ts';
import { type ClientHello, ClientHelloReader, UNREADABLE } from '../tls/client-hello.ts';

/** The end of a tunnel at a socket of a client, or of its API server, which finds the ClientHello that passes first. Nothing waits for it. */
export class HelloEnd extends SocketEnd {
  readonly #way: 'from' | 'to';
  readonly #found: (hello: ClientHello) => void;
  /** Unset once it is known whether there is one. */
  #reader: ClientHelloReader | undefined = new ClientHelloReader();

  /** @param way of the hello: from a client, or to an API server */
  constructor(socket: Socket, way: 'from' | 'to', found: (hello: ClientHello) => void) {
    super(socket);
    this.#way = way;
    this.#found = found;
  }

  override use(user: EndUser): void {
    const looking: EndUser = {
      onData: (bytes) => {
        this.#look(bytes);
        user.onData(bytes);
      },
      onDrain: () => user.onDrain(),
      onEnd: () => user.onEnd(),
      onClose: (failure) => user.onClose(failure),
    };
    super.use(this.#way === 'to' ? user : looking);
  }

  override write(bytes: Uint8Array): boolean {
    if (this.#way === 'to') this.#look(bytes);
    return super.write(bytes);
  }

  #look(bytes: Uint8Array): void {
    const hello = this.#reader?.read(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length));
    if (hello === undefined) return;
    this.#reader = undefined;
    if (hello !== UNREADABLE) this.#found(hello);
  }
}

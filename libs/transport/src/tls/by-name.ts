import type { Server, Socket } from 'node:net';
import { guarding, putBack, remoteOf } from '@isthmus/runtime';
import type { PlaneEvents } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { type ClientHello, ClientHelloReader, UNREADABLE } from './client-hello.ts';

/** A client that names the server it wants. */
export type NamedHello = ClientHello & { readonly serverName: string };

/** Says who takes a connection by what its client asks for, with all its bytes still to be read. Undefined: the port itself. */
export type ByName = (hello: NamedHello) => ((socket: Socket) => void) | undefined;

interface ByNameOptions {
  /** Unset while no name is to be taken: then nothing is read ahead. */
  readonly choose: () => ByName | undefined;
  /** Gets each connection that is taken, and who takes it. */
  readonly taken: (socket: Socket, take: (socket: Socket) => void) => void;
  readonly where: string;
  readonly events: PlaneEvents;
}

/**
 * Reads the ClientHello of each connection before the server sees it. Those that ask for certain names go elsewhere, and the server gets all
 * others with their bytes: what is no TLS, names nothing, or takes too many bytes or too long too. Call it before the server is bound.
 */
export function takeByName(server: Server, { choose, taken, where, events }: ByNameOptions): void {
  const own = server.listeners('connection');
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    const byName = choose();
    const pass = () => {
      for (const each of own) each.call(server, socket);
    };
    if (!byName) return pass();
    const reader = new ClientHelloReader();
    const settle = () => {
      clearTimeout(timer);
      socket.off('data', read).off('end', gone).off('close', settle);
    };
    const guarded = guarding((error) => {
      settle();
      socket.destroy();
      events.emit('fault', where, remoteOf(socket), error);
    });
    const decide = (hello: ClientHello | undefined) => {
      settle();
      if (reader.bytes.length > 0) putBack(socket, reader.bytes);
      else socket.pause();
      const take = isNamed(hello) ? byName(hello) : undefined;
      if (take) return taken(socket, take);
      pass();
      // Below a TLS socket nothing reads it, and what was put back is read first.
      if (socket.listenerCount('data') > 0) socket.resume();
    };
    const read = guarded((chunk: Buffer) => {
      const hello = reader.read(chunk);
      if (hello !== undefined) decide(hello === UNREADABLE ? undefined : hello);
    });
    // A load balancer's health check connects and closes, which is no error.
    const gone = guarded(() => {
      settle();
      socket.destroy();
    });
    const timer = setTimeout(
      guarded(() => decide(undefined)),
      TRANSPORT.helloMs,
    );
    socket
      .on('error', () => {})
      .on('data', read)
      .on('end', gone)
      .on('close', settle);
  });
}

function isNamed(hello: ClientHello | undefined): hello is NamedHello {
  return hello?.serverName !== undefined;
}

import type { Server, Socket } from 'node:net';
import { guarding, putBack, remoteOf } from '@isthmus/runtime';
import type { PlaneEvents } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { Pieces } from '../http1.ts';

/** What a client says before anything is answered (RFC 8446 section 4.1.2). */
export interface ClientHello {
  /** The server name (SNI), as it was sent: of an encrypted hello, the outer one. Unset: none, or not exactly one. */
  readonly serverName: string | undefined;
  /** 32 bytes as hex. No two hellos have the same. */
  readonly random: string;
}

/** No name can be found: it is no ClientHello, a malformed one, or a longer one than is read. */
export const UNREADABLE = 'unreadable';

/** Types of records, of handshake messages, and of extensions. */
export const HANDSHAKE = 22;
const [CLIENT_HELLO, SERVER_NAME, HOST_NAME] = [1, 0, 0];

/** Type, version and length of a record; type and length of a handshake message. */
const [RECORD_HEAD, MESSAGE_HEAD] = [5, 4];

/** The longest fragment in a record (RFC 8446 section 5.1). */
const MOST_IN_RECORD = 16_384;

const NOTHING = Buffer.alloc(0);

/**
 * Reads the ClientHello at the beginning of a connection, however it is cut into records and segments. What it costs grows with its bytes alone:
 * each is copied a few times at most, and what is whole is looked at once.
 */
export class ClientHelloReader {
  /** All bytes so far. */
  bytes: Buffer = NOTHING;
  readonly #pieces = new Pieces();
  /** Of the message, with its head. */
  readonly #message = new Pieces();
  /** Where the bytes begin that were not looked at, and how many are left of the record there: 0 if its head comes next. */
  #next = 0;
  #left = 0;

  /** @returns undefined while more bytes are needed */
  read(chunk: Buffer): ClientHello | typeof UNREADABLE | undefined {
    const bytes = this.#pieces.add(chunk);
    this.bytes = bytes;
    for (;;) {
      if (this.#left === 0) {
        const [start, have] = [this.#next, bytes.length - this.#next];
        if ((have > 0 && bytes[start] !== HANDSHAKE) || (have > 1 && bytes[start + 1] !== 3)) return UNREADABLE;
        if (have < RECORD_HEAD) break;
        this.#left = bytes.readUInt16BE(start + 3);
        if (this.#left === 0 || this.#left > MOST_IN_RECORD) return UNREADABLE;
        this.#next += RECORD_HEAD;
      }
      const fragment = bytes.subarray(this.#next, this.#next + this.#left);
      if (fragment.length === 0) break;
      this.#next += fragment.length;
      this.#left -= fragment.length;
      const message = this.#message.add(fragment);
      if (message[0] !== CLIENT_HELLO) return UNREADABLE;
      if (message.length < MESSAGE_HEAD) continue;
      const length = MESSAGE_HEAD + message.readUIntBE(1, 3);
      if (length > TRANSPORT.helloBytes) return UNREADABLE;
      if (message.length >= length) return helloIn(message.subarray(MESSAGE_HEAD, length)) ?? UNREADABLE;
    }
    return bytes.length >= TRANSPORT.helloBytes ? UNREADABLE : undefined;
  }
}

/** Reads vectors with a length in front of them (RFC 8446 section 3.4). */
class Vectors {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get over(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** @throws RangeError if there are fewer bytes */
  take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new RangeError('cut off');
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  number(size: number): number {
    return this.take(size).readUIntBE(0, size);
  }

  /** @param size of the length */
  vector(size: number): Buffer {
    return this.take(this.number(size));
  }
}

/** @returns undefined if it is malformed */
function helloIn(message: Buffer): ClientHello | undefined {
  try {
    const hello = new Vectors(message);
    hello.take(2);
    const random = hello.take(32).toString('hex');
    // The session's id, cipher suites, compression methods.
    for (const size of [1, 2, 1]) hello.vector(size);
    const extensions = hello.over ? NOTHING : hello.vector(2);
    return hello.over ? { serverName: nameIn(new Vectors(extensions)), random } : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Two names, in one extension or in two, are none: who reads the first would disagree with who reads the last. */
function nameIn(extensions: Vectors): string | undefined {
  let found: string | undefined;
  let seen = 0;
  while (!extensions.over) {
    const type = extensions.number(2);
    const body = extensions.vector(2);
    if (type !== SERVER_NAME) continue;
    seen++;
    found = onlyName(body);
  }
  return seen === 1 ? found : undefined;
}

/** What a name may be made of: none of a NUL, a blank or what is not ASCII. */
const NAME = /^[\x21-\x7e]+$/;

function onlyName(body: Buffer): string | undefined {
  const extension = new Vectors(body);
  const names = new Vectors(extension.vector(2));
  if (!extension.over || names.over) return undefined;
  const type = names.number(1);
  const name = names.vector(2).toString('latin1');
  return type === HOST_NAME && names.over && NAME.test(name) ? name : undefined;
}

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

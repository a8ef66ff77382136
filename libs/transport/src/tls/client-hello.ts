import { TRANSPORT } from '../defaults.ts';

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
const [HANDSHAKE, CLIENT_HELLO, SERVER_NAME, HOST_NAME] = [22, 1, 0, 0];

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
  #bytes: Buffer = NOTHING;
  #length = 0;
  /** Where the next record begins. */
  #next = 0;
  /** Where the fragments of whole records are. */
  readonly #fragments: (readonly [start: number, end: number])[] = [];
  /** Their bytes in all. */
  #whole = 0;
  /** Bytes of the message with its head; 0 while that is not known. */
  #message = 0;

  /** All bytes so far. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** @returns undefined while more bytes are needed */
  read(chunk: Buffer): ClientHello | typeof UNREADABLE | undefined {
    this.#append(chunk);
    const broken = !this.#records() || this.#message > TRANSPORT.helloBytes;
    if (broken) return UNREADABLE;
    if (this.#message > 0 && this.#whole >= this.#message) return helloIn(this.#assembled()) ?? UNREADABLE;
    return this.#length >= TRANSPORT.helloBytes ? UNREADABLE : undefined;
  }

  #append(chunk: Buffer): void {
    const length = this.#length + chunk.length;
    // Most come in one piece.
    if (this.#length === 0) this.#bytes = chunk;
    else if (length > this.#bytes.length) {
      const bytes = Buffer.allocUnsafeSlow(2 * length);
      this.#bytes.copy(bytes, 0, 0, this.#length);
      chunk.copy(bytes, this.#length);
      this.#bytes = bytes;
    } else chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  /** Notes the records that are whole now. @returns false if they cannot be those of a ClientHello */
  #records(): boolean {
    const bytes = this.#bytes;
    while (this.#message === 0 || this.#whole < this.#message) {
      const [start, have] = [this.#next, this.#length - this.#next];
      if (have > 0 && bytes[start] !== HANDSHAKE) return false;
      if (have > 1 && bytes[start + 1] !== 3) return false;
      if (have < RECORD_HEAD) return true;
      const size = bytes.readUInt16BE(start + 3);
      if (size === 0 || size > MOST_IN_RECORD) return false;
      if (have < RECORD_HEAD + size) return this.#begins(start + RECORD_HEAD, this.#length);
      this.#next = start + RECORD_HEAD + size;
      this.#fragments.push([start + RECORD_HEAD, this.#next]);
      this.#whole += size;
      if (!this.#begins(0, 0)) return false;
    }
    return true;
  }

  /** Reads the head of the message, once it is there: in whole records, or with the part of another one. */
  #begins(start: number, end: number): boolean {
    if (this.#message > 0 || this.#whole + end - start === 0) return true;
    const head = this.#first(start, end);
    if (head[0] !== CLIENT_HELLO) return false;
    if (head.length === MESSAGE_HEAD) this.#message = MESSAGE_HEAD + head.readUIntBE(1, 3);
    return true;
  }

  #first(start: number, end: number): Buffer {
    const pieces = [...this.#fragments.slice(0, MESSAGE_HEAD), [start, end] as const];
    return Buffer.concat(pieces.map(([from, to]) => this.#bytes.subarray(from, to))).subarray(0, MESSAGE_HEAD);
  }

  #assembled(): Buffer {
    const pieces = this.#fragments.map(([from, to]) => this.#bytes.subarray(from, to));
    const message = pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces);
    return message.subarray(MESSAGE_HEAD, this.#message);
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

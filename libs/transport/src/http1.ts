import type { Socket } from 'node:net';
import { printable } from '@isthmus/runtime';
import { TRANSPORT } from './defaults.ts';

const NOTHING = Buffer.alloc(0);

/**
 * Bytes that arrive in pieces and are needed as a whole. The room doubles as they grow, so each byte is copied at most twice on
 * average, however small the pieces are: joining everything again for each piece would cost the square. The caller checks the length.
 */
export class Pieces {
  #room: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Returns all bytes so far. The result is valid until more is added. A first piece is not copied. */
  add(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (this.#length === 0) this.#room = piece;
    else {
      // Also if the room is the first piece, which belongs to the socket.
      if (length > this.#room.length) this.#grow(length);
      this.#room.set(piece, this.#length);
    }
    this.#length = length;
    return this.#room.subarray(0, length);
  }

  /** Returns all bytes and keeps none of them. */
  take(): Buffer {
    const all = this.#room.subarray(0, this.#length);
    this.#room = NOTHING;
    this.#length = 0;
    return all;
  }

  #grow(length: number): void {
    const room = Buffer.allocUnsafeSlow(2 * length);
    room.set(this.#room.subarray(0, this.#length));
    this.#room = room;
  }
}

const HEAD_END = '\r\n\r\n';

/** The first line of a message, and its fields. Names are in lower case. The values of a repeated field are joined by a comma. */
export interface HttpHead {
  readonly line: string;
  readonly fields: ReadonlyMap<string, string>;
}

/**
 * Reads the head of an HTTP/1.1 message and leaves every byte behind it on the socket. What follows an upgrade is not HTTP/1.1, and
 * node:http cannot hand a socket over on every runtime.
 * @param timeout milliseconds
 * @param what the message is, for errors
 */
export function readHead(socket: Socket, timeout: number, what: 'answer' | 'request'): Promise<HttpHead> {
  return new Promise((resolve, reject) => {
    const pieces = new Pieces();
    const settle = (done: () => void) => {
      clearTimeout(timer);
      socket.off('readable', read).off('error', fail).off('end', close).off('close', close);
      done();
    };
    const fail = (error: Error) => settle(() => reject(error));
    const close = () => fail(new Error(`connection closed before an ${what}`));
    const read = () => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        const searched = Math.max(0, pieces.length - HEAD_END.length + 1);
        const seen = pieces.add(chunk);
        const end = seen.indexOf(HEAD_END, searched);
        if (end >= 0) {
          const rest = seen.subarray(end + HEAD_END.length);
          if (rest.length > 0) socket.unshift(rest);
          settle(() => resolve(parseHead(seen.toString('latin1', 0, end))));
          return;
        }
        if (seen.length > TRANSPORT.headBytes) {
          fail(new Error(`${what}'s head is longer than ${TRANSPORT.headBytes} bytes`));
          return;
        }
      }
    };
    const timer = setTimeout(() => fail(new Error(`no ${what} in ${timeout} ms`)), timeout);
    socket.on('readable', read).once('error', fail).once('end', close).once('close', close);
    read();
  });
}

function parseHead(text: string): HttpHead {
  const [line = '', ...lines] = text.split('\r\n');
  const fields = new Map<string, string>();
  for (const each of lines) {
    const colon = each.indexOf(':');
    if (colon <= 0) continue;
    const [name, value] = [each.slice(0, colon).toLowerCase(), each.slice(colon + 1).trim()];
    const before = fields.get(name);
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return { line, fields };
}

/** The head of an answer. */
export interface HttpAnswer {
  readonly status: number;
  /** The text after the status: `Not Found`. May be empty. */
  readonly reason: string;
  readonly fields: HttpHead['fields'];
}

/** Reads the head of an answer, see `readHead`. */
export async function readAnswer(socket: Socket, timeout: number): Promise<HttpAnswer> {
  const { line, fields } = await readHead(socket, timeout, 'answer');
  const [, status, reason = ''] = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(line) ?? [];
  if (status === undefined) throw new Error(`not an HTTP/1.1 answer: ${JSON.stringify(line.slice(0, 60))}`);
  return { status: Number(status), reason, fields };
}
/** Returns undefined if it is not percent-encoded UTF-8. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Accepts any text. encodeURIComponent throws for half of a surrogate pair, which JSON from elsewhere may contain. */
export function percentEncoded(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** Returns a peer's reason for people to read. A reason that is not percent-encoded stays as it is. */
export function reasonOf(text: string): string {
  return printable((percentDecoded(text) ?? text).slice(0, TRANSPORT.shownReasonCharacters));
}

/**
 * Ends a connection with an answer. What the peer still sends is read and dropped, for a while: with bytes that nobody has read, the close
 * becomes a reset, which overtakes the answer.
 */
export function answerLast(socket: Socket, answer: string): void {
  endsSoon(socket);
  socket.resume().end(answer);
}

/** Gives a refused peer a while to close. @param late called if it has not */
export function endsSoon(socket: Socket, late?: () => void): void {
  const ended = () => {
    late?.();
    socket.destroy();
  };
  const timer = setTimeout(ended, TRANSPORT.refusedPeerMs).unref();
  socket.on('error', () => {});
  socket.on('close', () => clearTimeout(timer));
}

/** Resolves once the socket has taken the text. Until then, no HTTP/2 may start on it: Node ends the process. */
export function write(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

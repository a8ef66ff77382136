import type { Socket } from 'node:net';
import { Pieces } from './pieces.ts';

/** The longest head that is read, in bytes. */
const MAX_HEAD = 16 * 1024;

const HEAD_END = '\r\n\r\n';

/** A status line and its fields. Names are in lower case; of a repeated field, the last counts. */
export interface HttpHead {
  readonly status: number;
  /** The text after the status: `Not Found`. May be empty. */
  readonly reason: string;
  readonly fields: ReadonlyMap<string, string>;
}

/**
 * Reads the head of an HTTP/1.1 answer and leaves every byte behind it on the socket. What follows a 101 is not HTTP/1.1, and node:http
 * cannot hand a socket over on every runtime.
 * @param timeout milliseconds
 */
export function readHead(socket: Socket, timeout: number): Promise<HttpHead> {
  return new Promise((resolve, reject) => {
    const pieces = new Pieces();
    const settle = (error: Error | undefined, head?: HttpHead) => {
      clearTimeout(timer);
      socket.off('readable', read);
      socket.off('error', fail);
      socket.off('close', close);
      if (head) resolve(head);
      else reject(error);
    };
    const fail = (error: Error) => settle(error);
    const close = () => settle(new Error('connection closed before an answer'));
    const read = () => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        const searched = Math.max(0, pieces.length - HEAD_END.length + 1);
        const seen = pieces.add(chunk);
        const end = seen.indexOf(HEAD_END, searched);
        if (end >= 0) {
          const rest = seen.subarray(end + HEAD_END.length);
          if (rest.length > 0) socket.unshift(rest);
          const head = parseHead(seen.toString('latin1', 0, end));
          settle(new Error(`not an HTTP/1.1 answer: ${JSON.stringify(seen.toString('latin1', 0, 60))}`), head);
          return;
        }
        if (seen.length > MAX_HEAD) {
          settle(new Error(`answer's head is longer than ${MAX_HEAD} bytes`));
          return;
        }
      }
    };
    const timer = setTimeout(() => settle(new Error(`no answer in ${timeout} ms`)), timeout);
    socket.on('readable', read);
    socket.once('error', fail);
    socket.once('close', close);
    read();
  });
}

function parseHead(text: string): HttpHead | undefined {
  const [statusLine = '', ...lines] = text.split('\r\n');
  const [, status, reason = ''] = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(statusLine) ?? [];
  if (status === undefined) return undefined;
  const fields = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  return { status: Number(status), reason, fields };
}

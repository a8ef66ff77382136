import { STATUS_CODES } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { FrameReader, FrameType, headersFrames, hpackEncode, PREFACE, settingsFrame } from '@isthmus/http2';
import { StatusError, statusFields } from '../grpc/status.ts';
import { percentEncoded } from '../head/percent.ts';

/** How long one that is turned away may take to ask, to read why, and to go, in milliseconds. */
const TURNED_AWAY_FOR = 1000;

/** What one that is turned away may send until its first request is seen, in bytes: preface, SETTINGS and one request's head are less. */
const MOST = 64 * 1024;

/** HTTP/2's least bound of a frame (RFC 9113 section 4.2). */
const MAX_FRAME = 16 * 1024;

/** Where an answer says why, percent-encoded. */
export const WHY_FIELD = 'isthmus-error';

/**
 * Tells a peer whose certificate is refused why, in the protocol that it chose by ALPN, and ends the connection. Neither OpenSSL in
 * Node nor Deno lets a server send the TLS alert for it: the handshake is over when the certificate is judged. Nothing of what
 * the peer sends is read but the head of HTTP/2 frames, for the number of the stream to answer on.
 */
export function turnAway(socket: TLSSocket, why: string): void {
  const timer = setTimeout(() => socket.destroy(), TURNED_AWAY_FOR).unref();
  socket.on('error', () => {});
  socket.on('close', () => clearTimeout(timer));
  if (socket.alpnProtocol === 'h2') answerFirstStream(socket, why);
  // What it has sent is read, since a reset would overtake the answer.
  else socket.resume().end(refusal(why));
}

function refusal(why: string): string {
  const body = `${why}\n`;
  const fields = [
    'connection: close',
    'content-type: text/plain; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    `${WHY_FIELD}: ${percentEncoded(why)}`,
  ];
  return [`HTTP/1.1 403 ${STATUS_CODES[403]}`, ...fields, '', body].join('\r\n');
}

/** Both to gRPC's clients, in its status, and to a link's other end. */
function answerFirstStream(socket: TLSSocket, why: string): void {
  const fields = statusFields(new StatusError('PermissionDenied', why));
  const head = hpackEncode([
    [':status', '200'],
    ['content-type', 'application/grpc'],
    ...fields,
    [WHY_FIELD, percentEncoded(why)],
  ]);
  const reader = new FrameReader(
    {
      data() {},
      frame(type, _flags, stream) {
        if (type !== FrameType.HEADERS) return;
        reader.stop();
        socket.end(Buffer.concat(headersFrames(stream, head, true, MAX_FRAME)));
      },
    },
    MAX_FRAME,
  );
  let seen = 0;
  socket.write(settingsFrame({}));
  socket.on('data', (chunk: Buffer) => {
    const skipped = Math.max(0, PREFACE.length - seen);
    seen += chunk.length;
    try {
      if (seen > MOST) throw new Error('it sends without end');
      reader.read(chunk.subarray(skipped));
    } catch {
      socket.destroy();
    }
  });
}

import { STATUS_CODES } from 'node:http';
import type { TLSSocket } from 'node:tls';
import {
  FrameReader,
  FrameType,
  headersFrames,
  hpackEncode,
  PREFACE,
  StatusError,
  settingsFrame,
  statusFields,
} from '@isthmus/wire';
import { endsSoon } from '../head/last-answer.ts';
import { percentEncoded } from '../head/percent.ts';

/** How much a refused peer may send until its first request, in bytes. Preface, SETTINGS and the head of a request are less. */
const MAX_FROM_REFUSED = 64 * 1024;

/** The smallest limit of a frame in HTTP/2 (RFC 9113 section 4.2). */
const MAX_FRAME = 16 * 1024;

/** How long a refused peer may take to ask, in milliseconds, before it is told anyway. */
const ASKS_WITHIN = 250;

/** The field of an answer that says why, percent-encoded. */
export const WHY_FIELD = 'isthmus-error';

/**
 * Tells a peer why its certificate is refused, in the protocol that it chose by ALPN, and ends the connection. Neither Node's OpenSSL
 * nor Deno lets a server send the TLS alert, because the certificate is verified after the handshake. Of what the peer sends, only the
 * heads of HTTP/2 frames are read, to find the stream to answer on.
 * @param wanted called once if the peer asks for something, or stays: a load balancer's health check closes after its handshake
 */
export function turnAway(socket: TLSSocket, why: string, wanted: () => void): void {
  let told = false;
  const tell = () => {
    if (!told) wanted();
    told = true;
  };
  socket.once('data', tell);
  if (socket.alpnProtocol === 'h2') answerFirstStream(socket, why, tell);
  else answerSoon(socket, why, tell);
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

/** Answers a request, or a peer that waits to be told. Deno reads nothing more of a connection that it has ended: so not at once. */
function answerSoon(socket: TLSSocket, why: string, late: () => void): void {
  endsSoon(socket, late);
  const answer = () => {
    clearTimeout(timer);
    socket.off('data', answer).resume().end(refusal(why));
  };
  const timer = setTimeout(answer, ASKS_WITHIN).unref();
  socket.once('close', () => clearTimeout(timer));
  socket.on('data', answer);
}

/** Answers both gRPC clients, in the status, and the other end of a link. */
function answerFirstStream(socket: TLSSocket, why: string, late: () => void): void {
  endsSoon(socket, late);
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
      if (seen > MAX_FROM_REFUSED) throw new Error('it sends without end');
      reader.read(chunk.subarray(skipped));
    } catch {
      socket.destroy();
    }
  });
}

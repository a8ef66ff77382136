import { asDialError, type DialAbort, type DialError, NotAuthorised, type TunnelEnd } from '@isthmus/tunnel';
import {
  type DuplexStream,
  ErrorCode,
  type Field,
  type Http2Stream,
  hpackEncode,
  type Metadata,
  PendingStream,
} from '@isthmus/wire';
import { type CallerEdgeOptions, checkTarget, connectDial, refusalFields } from './connect.ts';
import { TRANSPORT } from './defaults.ts';
import type { GrpcServerOptions } from './grpc/server.ts';
import { asDuplex } from './link/tunnel-end.ts';
import { challenged, credentialIn, RequestRefused } from './proxy-authorization.ts';
import { type ServedDial, serveDial, type Waiter } from './serve-dial.ts';
import type { CallerIdentity, ConnectionPeer } from './tls/certificate.ts';

/** What any HTTP/1.1 request-target of a CONNECT may hold. HPACK carries more. */
const TARGET = /^[\x21-\x7e\x80-\xff]+$/;

const ESTABLISHED = hpackEncode([[':status', '200']]);

/** The stream of one CONNECT. */
interface Call {
  readonly pending: PendingStream;
  readonly peer: ConnectionPeer;
  readonly proven: () => void;
  /** Aborts when the caller has gone, before its dial began. */
  readonly gone: AbortController;
  /** Of its dial, once it began. */
  signal: DialAbort | undefined;
}

/**
 * The callers' CONNECT over HTTP/2 (RFC 9113 section 8.5): as over HTTP/1.1, but a stream has what a connection has there. `:authority` is the
 * destination, END_STREAM the half-close, RST_STREAM a cut.
 */
export function connectStreams(options: CallerEdgeOptions): NonNullable<GrpcServerOptions['connect']> {
  const { events } = options;
  const serve = async (call: Call, request: Metadata) => {
    const { pending } = call;
    const { stream } = pending;
    let dialled: ServedDial;
    try {
      const [target = '', traceparent] = [request.first(':authority'), request.first('traceparent')];
      if (!TARGET.test(target)) throw new RequestRefused(400, 'the target is not HOST:PORT');
      checkTarget(target);
      const who = await identified(call, request.get('proxy-authorization'), target, options);
      if (stream.closed) return;
      dialled = connectDial({ target, ...(traceparent !== undefined && { traceparent }) }, who, options);
    } catch (error) {
      refuse(call, asDialError(error));
      return;
    }
    stream.account(dialled.tenant);
    call.signal = dialled.signal;
    const waiter: Waiter = {
      accept() {
        if (stream.closed) return undefined;
        stream.isTunnel = true;
        stream.answer(ESTABLISHED);
        return callerEnd(asDuplex(pending, () => events.emit('caller:close', 'http-connect')));
      },
      refuse: (error) => answerError(stream, error),
      unanswered: () => events.emit('dial:undelivered', dialled),
    };
    await serveDial(dialled, waiter, { ...options, role: 'gateway' });
  };
  const refuse = ({ pending, peer, gone }: Call, error: DialError) => {
    const why = error.cause instanceof NotAuthorised ? error.cause : error;
    // Also of a caller that did not wait for the answer.
    if (gone.signal.aborted && why === error) return;
    events.emit('refused', 'http-connect', peer.remote, why);
    answerError(pending.stream, error);
    peer.refused?.(why);
  };
  return (stream, request, peer, proven) => {
    events.emit('caller:open', 'http-connect');
    const gone = new AbortController();
    const closed = () => {
      events.emit('caller:close', 'http-connect');
      gone.abort();
      call.signal?.abort(stream.reason ?? new Error('the caller went away'));
    };
    const call: Call = { pending: new PendingStream(stream, { closed }), peer, proven, gone, signal: undefined };
    stream.guarded(() => serve(call, request))();
  };
}

/** @throws DialError */
async function identified(
  { peer, proven, gone }: Call,
  credentials: readonly string[],
  target: string,
  { identifyCaller, identifyByToken }: CallerEdgeOptions,
): Promise<CallerIdentity | NotAuthorised> {
  const shown = identifyByToken && credentialIn(credentials, peer.socket);
  try {
    const who = shown ? await identifyByToken(peer, shown, gone.signal) : identifyCaller(peer);
    if (!(who instanceof NotAuthorised)) proven();
    return who;
  } catch (error) {
    throw error instanceof NotAuthorised ? challenged(error.dialling(target)) : error;
  }
}

/** Answers with a head alone: flow control cannot hold it up. */
function answerError(stream: Http2Stream, error: DialError): void {
  const fields: Field[] = [[':status', String(error.status)], ...refusalFields(error)];
  stream.answer(hpackEncode(fields), true);
}

function callerEnd(stream: DuplexStream): TunnelEnd {
  return {
    stream,
    halfOpen: true,
    // As a TCP reset (section 8.5).
    abort: () => stream.close(ErrorCode.CONNECT_ERROR),
    // A reset may overtake what its receiver has not read.
    delivered(then, silentMs) {
      setTimeout(then, Math.max(0, TRANSPORT.deliveryMs - silentMs)).unref();
    },
  };
}

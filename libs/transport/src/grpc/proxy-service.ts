import { type Dial, DialError, formatDestination, NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';
import { type ServerCall, StatusError } from '@isthmus/wire';
import { denied, type Identify } from '../callers/identify.ts';
import type { ConnectionPeer } from '../listen/connection-peer.ts';
import { servePackets } from '../packets/serve.ts';
import { type GrpcService, PROXY_METHOD } from './service.ts';

/**
 * How long a caller may take between opening a stream and dialling, in milliseconds. An API server does both at once. A stream without
 * a dial would stay as long as its connection.
 */
const FIRST_DIAL_MS = 30_000;

export interface ProxyServiceOptions {
  readonly dial: Dial;
  readonly identify: Identify;
  /**
   * Counts a stream that has not dialled yet among its tenant's pending dials. Returns what to call when it dials or ends.
   * @throws DialError if the tenant has no room for it
   */
  readonly awaitDial?: ((tenant: string) => () => void) | undefined;
  readonly events: PlaneEvents;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
  /** Milliseconds; for tests. */
  readonly firstDialMs?: number;
}

/** The callers' gRPC edge, as API servers use it: one stream a dial. */
export function proxyService(options: ProxyServiceOptions): GrpcService {
  return { path: PROXY_METHOD, serve: (call, admitted) => serve(call, admitted, options) };
}

function serve(call: ServerCall<ConnectionPeer>, admitted: () => void, options: ProxyServiceOptions): void {
  const { events, timeout, firstDialMs = FIRST_DIAL_MS, identify, awaitDial = () => () => {} } = options;
  const { remote } = call.peer;
  let who: ReturnType<Identify>;
  let dialled = () => {};
  try {
    who = identify(call.peer);
    if (!(who instanceof NotAuthorised)) {
      admitted();
      dialled = awaitDial(who.tenant);
    }
  } catch (error) {
    if (!(error instanceof DialError)) throw error;
    call.fail(new StatusError('ResourceExhausted', error.message));
    events.emit('refused', 'callers', remote, error);
    return;
  }
  const [dialler, dial] =
    who instanceof NotAuthorised
      ? [{ tenant: '' }, refusing(who, remote, events)]
      : [{ tenant: who.tenant, caller: { via: 'grpc' as const, ...who.caller } }, options.dial];
  const traceparent = call.metadata.first('traceparent');
  events.emit('caller:open', 'grpc');
  const refuse = () => {
    const error = new Error(`no dial within ${firstDialMs / 1000} s`);
    served.destroy(error);
    events.emit('refused', 'callers', remote, error);
  };
  const late = setTimeout(call.guarded(refuse), firstDialMs).unref();
  const waitsNoMore = () => {
    clearTimeout(late);
    dialled();
    dialled = () => {};
  };
  const served = servePackets(call, {
    role: 'gateway',
    dial(request) {
      waitsNoMore();
      call.account(request.tenant);
      return dial(request);
    },
    ...dialler,
    events,
    limits: { dialMs: timeout },
    ...(traceparent !== undefined && { traceparent }),
  });
  const gone = () => {
    waitsNoMore();
    events.emit('caller:close', 'grpc');
  };
  void served.closed.then(call.guarded(gone));
}

/** The caller reads why, and its other streams go on. */
function refusing(why: NotAuthorised, remote: string, events: PlaneEvents): Dial {
  return ({ destination }) => {
    events.emit('refused', 'callers', remote, why.dialling(formatDestination(destination)));
    return Promise.reject(denied(why));
  };
}

import { constants, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import {
  asDialError,
  type Dial,
  type DialRequest,
  deferred,
  type PlaneEvents,
  type Role,
  SessionLost,
  Tunnel,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { Control, type ControlMessage } from './control.ts';
import { endSession } from './ending.ts';
import { answerHead, attemptOf, readRequest, refusalHead } from './head.ts';
import { watchLiveness } from './liveness.ts';
import type { MembershipMessage } from './membership.ts';
import { ServingReconciler } from './reconcile.ts';
import { widen } from './settings.ts';
import { streamWindows } from './windows.ts';

/** Aborts that came before their dial are remembered for this many dials. */
const MAX_EARLY_ABORTS = 1024;

export interface LinkServerOptions {
  readonly session: ServerHttp2Session;
  readonly socket: Socket;
  /** What is at the other side, for error texts. */
  readonly peer: string;
  readonly role: Role;
  readonly dial: Dial;
  readonly events: PlaneEvents;
  /** The dialling side goes away, or will in a moment: it sends no new dials then, and closes when its tunnels are done. */
  readonly goaway?: () => void;
  /** What the hub on the other side says of its plane's hubs. */
  readonly membership?: (message: MembershipMessage) => void;
}

/**
 * The half of a link that serves dials: a hub towards gateways, an agent towards its hub. It is the HTTP/2 server, whoever
 * made the connection.
 */
export class LinkServer {
  readonly #closed = deferred<Error>();
  /** Resolves with the reason when the link and all its tunnels have ended. */
  readonly closed = this.#closed.promise;
  readonly #options: LinkServerOptions;
  readonly #streams = new Map<string, { readonly stream: ServerHttp2Stream; readonly pending: AbortController }>();
  readonly #unsent: ControlMessage[] = [];
  /** An abort can overtake its dial: HTTP/2 orders frames within a stream only (seen on Deno). */
  readonly #earlyAborts = new Set<string>();
  readonly #reconciler = new ServingReconciler<ServerHttp2Stream>({
    streams: () => this.#held(),
    send: (message) => this.#send(message),
    end: (stream) => this.#endOrphan(stream),
  });
  #control: Control | undefined;
  #draining = false;

  constructor(options: LinkServerOptions) {
    const { session, socket } = options;
    this.#options = options;
    widen(session);
    session.on('error', (error) => this.destroy(error));
    session.on('goaway', () => options.goaway?.());
    session.once('close', () => this.destroy(new Error('link closed')));
    socket.prependOnceListener('close', () => this.destroy(new Error('connection closed')));
    // HTTP/2 knows no half-open connection: what a killed process leaves behind is a FIN, and often no more.
    socket.once('end', () => this.destroy(new Error('connection closed')));
    if (socket.destroyed || socket.readableEnded) queueMicrotask(() => this.destroy(new Error('connection closed')));
    const say = () => this.#control?.send({ type: 'alive' });
    watchLiveness(session, socket, (error) => this.destroy(error), say);
    session.on('stream', (stream, head) => this.#accept(stream, head));
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** Asks the other side to send dials elsewhere while it can; takes them still. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#send({ type: 'drain' });
  }

  /** Takes no new dial, lets running tunnels finish, then closes. */
  close(): void {
    if (!this.#options.session.destroyed) this.#options.session.close();
    if (this.#streams.size === 0) this.destroy(new Error('link closed'));
  }

  /** Ends the link and every tunnel on it, but for what of ended ones is still to be read. */
  destroy(reason: Error): void {
    const { session, peer } = this.#options;
    const lost = new SessionLost(`${peer}: ${reason.message}`, { cause: reason });
    const open = [...this.#streams.values()];
    for (const { pending } of open) pending.abort(lost);
    endSession(
      session,
      open.map(({ stream }) => stream),
      lost,
    );
    this.#closed.resolve(lost);
  }

  #accept(stream: ServerHttp2Stream, head: IncomingHttpHeaders): void {
    stream.on('error', () => {});
    const { ':method': method, ':path': path } = head;
    if (method === 'CONNECT') void this.#serve(stream, head);
    else if (method === 'POST' && path === '/control' && !this.#control) this.#openControl(stream);
    else stream.respond({ ':status': method === 'POST' ? 404 : 405 }, { endStream: true });
  }

  async #serve(stream: ServerHttp2Stream, head: IncomingHttpHeaders): Promise<void> {
    const { role, dial, events, peer } = this.#options;
    const pending = new AbortController();
    let request: DialRequest;
    try {
      request = readRequest(head, pending.signal);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
      refuse(stream, error);
      return;
    }
    const attempt = attemptOf(request);
    if (this.#streams.has(attempt)) {
      refuse(stream, new Error(`dial ${request.id} is already open on this link`));
      return;
    }
    if (this.#earlyAborts.delete(attempt)) {
      reset(stream);
      return;
    }
    this.#streams.set(attempt, { stream, pending });
    streamWindows.opened(this.#options.session);
    stream.once('close', () => {
      this.#streams.delete(attempt);
      streamWindows.closed(this.#options.session);
      pending.abort();
      if (this.#streams.size === 0 && this.#options.session.closed) this.destroy(new Error('link closed'));
    });
    try {
      const established = await dial({ ...request, acknowledged: () => this.#acknowledge(stream) });
      if (stream.destroyed || stream.closed) {
        established.end.abort(new Error('the dialling side went away'));
        return;
      }
      stream.respond(answerHead(established));
      new Tunnel(role, request, tunnelEnd(stream), established, events);
    } catch (error) {
      refuse(stream, error);
    }
  }

  /** 102 (RFC 2518 section 10.1): the dial is in hand, its answer will take a while. */
  #acknowledge(stream: ServerHttp2Stream): void {
    if (stream.destroyed || stream.headersSent) return;
    stream.additionalHeaders({ ':status': 102 });
    // Deno holds an informational answer back until the session writes next.
    if ('Deno' in globalThis)
      setImmediate(() => this.#options.session.destroyed || this.#options.session.ping(() => {}));
  }

  #openControl(stream: ServerHttp2Stream): void {
    stream.respond({ ':status': 200 });
    const { role, events, peer } = this.#options;
    this.#control = new Control(stream, {
      receive: (message) => this.#receive(message),
      refused: (error) => events.emit('refused', `${role} link`, peer, error),
      fail: (error) => this.destroy(error),
    });
    for (const message of this.#unsent.splice(0)) this.#control.send(message);
  }

  #send(message: ControlMessage): void {
    if (this.#control) this.#control.send(message);
    else this.#unsent.push(message);
  }

  #receive(message: ControlMessage): void {
    if (message.type === 'abort') this.#abort(message.dial);
    else if (message.type === 'membership' || message.type === 'membership-change') this.#options.membership?.(message);
    else if (message.type === 'drain') this.#options.goaway?.();
    else if (message.type === 'held') this.#reconciler.held(message);
  }

  #abort(dial: string): void {
    const open = this.#streams.get(dial);
    if (open) reset(open.stream);
    else this.#rememberAbort(dial);
  }

  *#held(): Iterable<ServerHttp2Stream> {
    for (const { stream } of this.#streams.values()) yield stream;
  }

  #endOrphan(stream: ServerHttp2Stream): void {
    const { role, events } = this.#options;
    events.emit('tunnel:orphaned', role);
    reset(stream);
  }

  #rememberAbort(dial: string): void {
    this.#earlyAborts.add(dial);
    if (this.#earlyAborts.size > MAX_EARLY_ABORTS) {
      const [oldest] = this.#earlyAborts;
      this.#earlyAborts.delete(oldest as string);
    }
  }
}

function refuse(stream: ServerHttp2Stream, error: unknown): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond(refusalHead(asDialError(error)), { endStream: true });
  stream.resume();
}

function tunnelEnd(stream: ServerHttp2Stream): TunnelEnd {
  return { stream, halfOpen: true, abort: () => reset(stream) };
}

/** RST_STREAM from the HTTP/2 server's side is not counted by any guard. */
function reset(stream: ServerHttp2Stream): void {
  if (stream.destroyed) return;
  stream.close(constants.NGHTTP2_CANCEL);
  stream.destroy();
}

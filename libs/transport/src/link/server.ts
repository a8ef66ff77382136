import type { Socket } from 'node:net';
import type { DuplexStream, Head, Http2Session } from '@isthmus/http2';
import { deferred, guarding, RandomSet } from '@isthmus/runtime';
import { asDialError, DialError, printable, SessionLost } from '@isthmus/tunnel';
import { type ServeDialOptions, type ServedDial, serveDial, type Waiter } from '../dial/serve-dial.ts';
import { Control, type ControlMessage } from './control.ts';
import { answerHead, readRequest, refusalHead } from './head.ts';
import { watchLiveness } from './liveness.ts';
import type { MembershipMessage } from './membership.ts';
import type { PolicyRules } from './policy.ts';
import { ServingReconciler } from './reconcile.ts';
import { linkSession } from './settings.ts';
import { endOfStream } from './tunnel-end.ts';

export interface LinkServerOptions extends ServeDialOptions {
  readonly socket: Socket;
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** Called when the dialling side closes the link, or is about to. It sends no new dials, and closes when its tunnels have ended. */
  readonly goaway?: () => void;
  /** Gets what the hub on the other side says about its plane's hubs. */
  readonly membership?: (message: MembershipMessage) => void;
  /** The only tenant whose dials are served. Unset: every tenant's. */
  readonly tenant?: string;
  /** Gets what the tenant's callers may dial. It may throw for rules that cannot be used: they are counted as refused. */
  readonly policy?: (rules: PolicyRules) => void;
  /** See `watchLiveness`. Both sides must agree on it. */
  readonly pingInterval?: number | undefined;
  /** Called when the hub has taken the credential that was sent last. */
  readonly renewed?: () => void;
}

/**
 * The serving half of a link: a hub towards gateways, an agent towards its hub. It is the HTTP/2 server, whichever side made the
 * connection.
 */
export class LinkServer {
  readonly #closed = deferred<Error>();
  /** Resolves with the reason when the link and all its tunnels have ended. */
  readonly closed = this.#closed.promise;
  readonly #session: Http2Session;
  readonly #options: LinkServerOptions;
  readonly #streams = new RandomSet<DuplexStream>();
  readonly #unsent: ControlMessage[] = [];
  readonly #reconciler = new ServingReconciler<DuplexStream>({
    streams: () => this.#streams,
    send: (message) => this.#send(message),
    end: (stream) => this.#endOrphan(stream),
  });
  readonly #guarded = guarding((error) => this.#fault(error));
  #control: Control | undefined;
  #draining = false;
  #closing = false;

  constructor(options: LinkServerOptions) {
    this.#options = options;
    const session = linkSession('server', options.socket, options.peer);
    this.#session = session;
    session.once('goaway', () => {
      this.#closing = true;
      options.goaway?.();
    });
    session.once('close', (reason) => this.#closed.resolve(reason));
    watchLiveness(session, (error) => this.destroy(error), { interval: options.pingInterval });
    session.on('fault', (error) => this.#fault(error));
    session.on('stream', (stream, head) => this.#accept(stream, head));
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** Asks the other side to send dials elsewhere while it can. Still takes them. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#send({ type: 'drain' });
  }

  /** Sends a hub a fresh token. Call only if the hub has said that it takes one: see `HubHello.renewal`. */
  sendCredential(token: string): void {
    this.#send({ type: 'credential', token });
  }

  /** Takes no new dials, lets running tunnels finish, then closes. */
  close(): void {
    this.#closing = true;
    this.#session.close();
    this.#endWhenIdle();
  }

  /** Ends the link and every tunnel on it. Data of tunnels that ended before can still be read. */
  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }

  /** An idle control stream does not keep the link. */
  #endWhenIdle(): void {
    if (this.#closing && this.#streams.size === 0) this.destroy(new Error('link closed'));
  }

  #accept(stream: DuplexStream, head: Head): void {
    stream.on('error', () => {});
    const { ':method': method, ':path': path } = head;
    if (method === 'CONNECT') this.#serve(stream, head).catch((error) => this.#fault(error));
    else if (method === 'POST' && path === '/control' && !this.#control) this.#openControl(stream);
    else stream.resume().respond({ ':status': method === 'POST' ? 404 : 405 }, { endStream: true });
  }

  async #serve(stream: DuplexStream, head: Head): Promise<void> {
    const { role, events, peer } = this.#options;
    let request: ServedDial;
    try {
      request = readRequest(head);
      this.#checkTenant(request);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
      refuse(stream, asDialError(error));
      return;
    }
    this.#streams.add(stream);
    const abandon = this.#guarded(() => request.signal.abort(new Error('the dialling side went away')));
    stream.on('close', abandon);
    const closed = () => {
      this.#streams.delete(stream);
      this.#endWhenIdle();
    };
    stream.on('close', this.#guarded(closed));
    // 102 (RFC 2518 section 10.1): the dial is under way, and its answer will take a while.
    const acknowledged = () => stream.destroyed || stream.headersSent || stream.additionalHeaders({ ':status': 102 });
    const waiter: Waiter = {
      accept(established) {
        if (stream.destroyed) return undefined;
        stream.off('close', abandon);
        stream.respond(answerHead(established));
        return endOfStream(stream, peer);
      },
      refuse: (error) => refuse(stream, error),
    };
    await serveDial({ ...request, acknowledged }, waiter, this.#options);
  }

  #checkTenant({ tenant }: ServedDial): void {
    const { tenant: own = tenant, peer } = this.#options;
    if (tenant === own) return;
    const text = `${peer} dials for tenant ${printable(tenant)}, and this link is of tenant ${own}`;
    throw new DialError('http_request_denied', text);
  }

  #openControl(stream: DuplexStream): void {
    stream.respond({ ':status': 200 });
    stream.once('close', () => this.destroy(new Error('control stream ended')));
    const { role, events, peer } = this.#options;
    this.#control = new Control(stream, {
      receive: (message) => this.#receive(message),
      refused: (error) => events.emit('refused', `${role} link`, peer, error),
      fault: (error) => this.#fault(error),
      fail: (error) => this.destroy(error),
    });
    for (const message of this.#unsent.splice(0)) this.#control.send(message);
  }

  #send(message: ControlMessage): void {
    if (this.#control) this.#control.send(message);
    else this.#unsent.push(message);
  }

  #receive(message: ControlMessage): void {
    if (message.type === 'membership' || message.type === 'membership-change') this.#options.membership?.(message);
    else if (message.type === 'drain') this.#options.goaway?.();
    else if (message.type === 'held') this.#reconciler.held(message);
    else if (message.type === 'policy') this.#takePolicy(message);
    else if (message.type === 'renewed') this.#options.renewed?.();
  }

  #takePolicy(rules: PolicyRules): void {
    const { role, events, peer, policy } = this.#options;
    try {
      policy?.(rules);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
    }
  }

  /** Our code threw where it never should. The link ends, and the other side opens another. */
  #fault(error: Error): void {
    const { role, events, peer } = this.#options;
    this.destroy(error);
    events.emit('fault', `${role} link`, peer, error);
  }

  #endOrphan(stream: DuplexStream): void {
    const { role, events, peer } = this.#options;
    events.emit('tunnel:orphaned', role);
    stream.destroy(new SessionLost(`${peer} has lost the tunnel`));
  }
}

function refuse(stream: DuplexStream, error: DialError): void {
  if (stream.destroyed) return;
  stream.respond(refusalHead(error), { endStream: true });
  stream.resume();
}

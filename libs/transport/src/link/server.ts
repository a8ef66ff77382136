import type { Socket } from 'node:net';
import { deferred, guarding, RandomSet } from '@isthmus/runtime';
import { type GatewayLoss, HungUp, LinkReset, SessionLost } from '@isthmus/tunnel';
import {
  DuplexStream,
  ErrorCode,
  type Head,
  type Http2Session,
  type Http2Stream,
  type PingInterval,
  ServingReconciler,
  watchLiveness,
} from '@isthmus/wire';
import { Control, type ControlMessage } from './control.ts';
import { ATTACH_PATH } from './head.ts';
import { GATEWAY_FIELD, isInstance } from './instance.ts';
import type { MembershipMessage } from './membership.ts';
import type { PolicyRules } from './policy.ts';
import { ServedDials, type ServedDialsOptions } from './served-dials.ts';
import { linkSession } from './settings.ts';

export interface LinkServerOptions extends ServedDialsOptions {
  readonly socket: Socket;
  /** Called when the dialling side closes the link, or is about to. It sends no new dials, and closes when its tunnels have ended. */
  readonly goaway?: () => void;
  /** Called with what the hub at the other side says about its plane's hubs. */
  readonly membership?: (message: MembershipMessage) => void;
  /** Called with what the tenant's callers may dial. It may throw if it cannot use the rules, which are then counted as refused. */
  readonly policy?: (rules: PolicyRules) => void;
  /** See `watchLiveness`. */
  readonly ping?: PingInterval | undefined;
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
  readonly #streams = new RandomSet<Http2Stream>();
  readonly #unsent: ControlMessage[] = [];
  readonly #reconciler = new ServingReconciler<Http2Stream>({
    streams: () => this.#streams,
    send: (message) => this.#send(message),
    end: (stream) => this.#endOrphan(stream),
  });
  readonly #guarded = guarding((error) => this.#fault(error));
  readonly #closedStream = this.#guarded((stream: Http2Stream) => {
    this.#streams.delete(stream);
    this.#endWhenIdle();
  });
  readonly #dials: ServedDials;
  #control: Control | undefined;
  /** The gateway at the other side, by its process. */
  #gateway: string | undefined;
  #draining = false;
  #closing = false;

  constructor(options: LinkServerOptions) {
    this.#options = options;
    const session = linkSession('server', options.socket, options.peer, () => mayHaveDied());
    this.#session = session;
    this.#dials = new ServedDials(options, {
      streams: this.#streams,
      carriers: { peer: options.peer, far: 'caller', closed: this.#closedStream },
      direct: (gateway) => {
        this.#gateway = gateway;
      },
    });
    session.once('goaway', () => {
      this.#closing = true;
      options.goaway?.();
    });
    options.tunnels?.linked(this);
    session.once('close', (reason) => {
      options.tunnels?.unlinked(this, this.lossFor(reason));
      this.#closed.resolve(reason);
    });
    // It tells the other side the reason. If that arrives, the other side does not think that this process is dead.
    const mayHaveDied = watchLiveness(session, (error) => session.destroy(error, true), {
      ping: options.ping,
      carries: () => this.open > 0,
    });
    session.on('fault', (error) => this.#fault(error));
    session.on('begun', (stream, head) => this.#accept(stream, head));
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** The gateway at the other side, by its process; undefined if it does not say. */
  get gateway(): string | undefined {
    return this.#gateway;
  }

  /** Returns how the gateway at the other side was lost; undefined if it said goodbye. @param reason why the link has ended */
  lossFor(reason: Error): GatewayLoss | undefined {
    const gateway = this.#gateway;
    const reset = reason instanceof LinkReset;
    return gateway !== undefined && !this.#closing && (reset || reason instanceof HungUp)
      ? { gateway, reset }
      : undefined;
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

  /** The control stream alone does not keep a link open. */
  #endWhenIdle(): void {
    if (this.#closing && this.#streams.size === 0) this.destroy(new Error('link closed'));
  }

  #accept(stream: Http2Stream, head: Head): void {
    const { ':method': method, ':path': path } = head;
    if (method === 'CONNECT') this.#dials.dial(stream, head).catch((error) => this.#fault(error));
    else if (method === 'POST' && path === ATTACH_PATH)
      this.#dials.attach(stream, head).catch((error) => this.#fault(error));
    else
      this.#acceptOther(
        new DuplexStream(stream).on('error', () => {}),
        head,
      );
  }

  #acceptOther(stream: DuplexStream, head: Head): void {
    const { ':method': method, ':path': path } = head;
    if (method === 'POST' && path === '/control' && !this.#control) this.#openControl(stream, head);
    else stream.resume().respond({ ':status': method === 'POST' ? 404 : 405 }, { endStream: true });
  }

  #openControl(stream: DuplexStream, head: Head): void {
    const gateway = head[GATEWAY_FIELD];
    if (gateway !== undefined && isInstance(gateway)) this.#gateway = gateway;
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
    else if (message.type === 'hung-up') this.#options.tunnels?.hungUp(message, this);
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

  #endOrphan(stream: Http2Stream): void {
    const { role, events, peer } = this.#options;
    events.emit('tunnel:orphaned', role);
    stream.reset(ErrorCode.CANCEL, new SessionLost(`${peer} has lost the tunnel`));
  }
}

import type { Socket } from 'node:net';
import { ChannelCredentials } from '@grpc/grpc-js';

/** What becomes of a socket before the handshake: the one to do it on, which may lead through a proxy. */
export type Prepare = (socket: Socket) => Socket | Promise<Socket>;

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * Credentials that get hold of the socket that grpc-js opens, before `inner` does its handshake with the server. grpc-js could ask a proxy by
 * itself, but not over TLS, not within a deadline, and it does not report what the proxy answered.
 * @param target `host:port` of the server, whose name is verified, and not that of what the socket leads to
 */
export function socketCredentials(inner: ChannelCredentials, target: string, prepare: Prepare): ChannelCredentials {
  return new SocketCredentials(inner, target, prepare);
}

class SocketCredentials extends ChannelCredentials {
  readonly #inner: ChannelCredentials;
  readonly #target: string;
  readonly #prepare: Prepare;

  constructor(inner: ChannelCredentials, target: string, prepare: Prepare) {
    super();
    this.#inner = inner;
    this.#target = target;
    this.#prepare = prepare;
  }

  override _isSecure(): boolean {
    return this.#inner._isSecure();
  }

  override _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  override _createSecureConnector(
    ...[, options, calls]: Parameters<ChannelCredentials['_createSecureConnector']>
  ): Connector {
    const inner = this.#inner._createSecureConnector({ scheme: 'dns', path: this.#target }, options, calls);
    return {
      connect: async (socket) => inner.connect(await this.#prepare(socket)),
      waitForReady: () => inner.waitForReady(),
      getCallCredentials: () => inner.getCallCredentials(),
      destroy: () => inner.destroy(),
    };
  }
}

import { ChannelCredentials } from '@grpc/grpc-js';
import { parseDestination } from '@isthmus/tunnel';
import type { HttpProxy } from '../http-proxy/http-proxy.ts';
import { askProxy, type ThroughProxyOptions } from '../http-proxy/through-proxy.ts';

export interface ProxiedOptions extends ThroughProxyOptions {
  readonly proxy: HttpProxy;
  /** `host:port` of the server. */
  readonly target: string;
}

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * Credentials for a channel whose address is a proxy's: they ask the proxy for the server first, and then do the handshake of `inner` with the
 * server. grpc-js can ask a proxy by itself, but not over TLS, not within a deadline, and it does not report what the proxy answered.
 */
export function proxiedCredentials(inner: ChannelCredentials, options: ProxiedOptions): ChannelCredentials {
  return new ProxiedCredentials(inner, options);
}

class ProxiedCredentials extends ChannelCredentials {
  readonly #inner: ChannelCredentials;
  readonly #options: ProxiedOptions;

  constructor(inner: ChannelCredentials, options: ProxiedOptions) {
    super();
    this.#inner = inner;
    this.#options = options;
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
    const { proxy, target, ...rest } = this.#options;
    // The name to verify is the server's, not the proxy's.
    const inner = this.#inner._createSecureConnector({ scheme: 'dns', path: target }, options, calls);
    return {
      connect: async (socket) => inner.connect(await askProxy(socket, proxy, parseDestination(target), rest)),
      waitForReady: () => inner.waitForReady(),
      getCallCredentials: () => inner.getCallCredentials(),
      destroy: () => inner.destroy(),
    };
  }
}

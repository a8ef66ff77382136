import type { Socket } from 'node:net';
import { ChannelCredentials } from '@grpc/grpc-js';

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * Credentials of a channel whose handshakes are ours. grpc-js can ask a proxy and connect over TLS by itself, but not a proxy over TLS, not
 * within a deadline, and it judges a server's certificate by OpenSSL's rules.
 * @param lead takes a connected socket on to the server, and returns the one to speak HTTP/2 on
 */
export function credentialsBy(lead: (raw: Socket) => Promise<Socket>, secure: boolean): ChannelCredentials {
  return new ConnectionCredentials(lead, secure);
}

class ConnectionCredentials extends ChannelCredentials {
  readonly #lead: (raw: Socket) => Promise<Socket>;
  readonly #secure: boolean;

  constructor(lead: (raw: Socket) => Promise<Socket>, secure: boolean) {
    super();
    this.#lead = lead;
    this.#secure = secure;
  }

  override _isSecure(): boolean {
    return this.#secure;
  }

  override _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  override _createSecureConnector(...of: Parameters<ChannelCredentials['_createSecureConnector']>): Connector {
    const plain = ChannelCredentials.createInsecure()._createSecureConnector(...of);
    return {
      connect: async (raw) => ({ socket: await this.#lead(raw), secure: this.#secure }),
      waitForReady: () => plain.waitForReady(),
      getCallCredentials: () => plain.getCallCredentials(),
      destroy: () => plain.destroy(),
    };
  }
}

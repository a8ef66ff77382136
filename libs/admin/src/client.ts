import { isIP } from 'node:net';
import { adminApi } from '@isthmus/proto/admin';
import { type ClientTls, clientTls, connectTls, secured, socketPathOf } from '@isthmus/runtime';
import { ADMIN_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { ChannelCredentials, createChannel, createClient } from 'nice-grpc';
import { ADMIN } from './defaults.ts';

export interface AdminConnection extends Disposable {
  readonly admin: adminApi.AdminClient;
}

/** Certificates and a key, as PEM. */
export interface AdminClientTls {
  /** Authorities that sign the admin port's certificate. */
  readonly ca: Buffer;
  /** Client certificate, which the admin port asks for. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
}

/**
 * Returns a client of the admin port at `host:port`, or on a unix socket at `unix:/path`. Without TLS settings, and on unix sockets, it uses
 * plain text, as admin ports on loopback do.
 */
export function adminClient(address: string, tls?: AdminClientTls): AdminConnection {
  const path = socketPathOf(address);
  const credentials = tls && path === undefined ? credentialsFor(address, tls) : undefined;
  const channel = createChannel(path === undefined ? address : `unix://${path}`, credentials, {
    'grpc.max_receive_message_length': ADMIN.responseBytes,
    // grpc-js uses http_proxy even for loopback. Admin ports are reached directly.
    'grpc.enable_http_proxy': 0,
  });
  const admin = createClient(adminApi.AdminDefinition, channel);
  return { admin, [Symbol.dispose]: () => channel.close() };
}

function credentialsFor(address: string, { ca, cert, key }: AdminClientTls): ChannelCredentials {
  return new JudgedCredentials(clientTls({ ca, cert, key }), [parseDestination(address).host, ADMIN_SERVER_NAME]);
}

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/** TLS whose servers we judge, and not grpc-js by OpenSSL's rules. */
class JudgedCredentials extends ChannelCredentials {
  readonly #tls: ClientTls;
  readonly #names: readonly [host: string, name: string];

  constructor(tls: ClientTls, names: readonly [host: string, name: string]) {
    super();
    this.#tls = tls;
    this.#names = names;
  }

  override _isSecure(): boolean {
    return true;
  }

  override _equals(other: ChannelCredentials): boolean {
    return other === this;
  }

  override _createSecureConnector(...of: Parameters<ChannelCredentials['_createSecureConnector']>): Connector {
    const plain = ChannelCredentials.createInsecure()._createSecureConnector(...of);
    const [host, name] = this.#names;
    return {
      connect: async (raw) => {
        // Send the name instead of an IP address in the SNI extension (RFC 6066 section 3). Deno rejects an address there.
        const servername = isIP(host) === 0 ? host : name;
        const socket = connectTls({ socket: raw, ALPNProtocols: ['h2'], servername }, this.#tls, this.#names);
        await secured(socket);
        return { socket, secure: true };
      },
      waitForReady: () => plain.waitForReady(),
      getCallCredentials: () => plain.getCallCredentials(),
      destroy: () => plain.destroy(),
    };
  }
}

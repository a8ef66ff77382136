import { adminApi } from '@isthmus/proto/admin';
import { certificateOf, isFor, isIP, socketPathOf } from '@isthmus/runtime';
import { ADMIN_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { ChannelCredentials, createChannel, createClient } from 'nice-grpc';

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
 * Returns a gRPC client of the admin port at `host:port`, or on a unix socket at `unix:/path`, as a program of the plane's operators has it.
 * Without TLS settings, and on unix sockets, it uses plain text.
 */
export function adminClient(address: string, tls?: AdminClientTls): AdminConnection {
  const path = socketPathOf(address);
  const credentials = tls && path === undefined ? credentialsFor(address, tls) : undefined;
  const channel = createChannel(path === undefined ? address : `unix://${path}`, credentials, {
    'grpc.max_receive_message_length': 64 * 1024 * 1024,
    // grpc-js uses http_proxy even for loopback. Admin ports are reached directly.
    'grpc.enable_http_proxy': 0,
    // An address is no server name (RFC 6066 section 3), and Node refuses it.
    ...(credentials &&
      isIP(parseDestination(address).host) !== 0 && { 'grpc.ssl_target_name_override': ADMIN_SERVER_NAME }),
  });
  const admin = createClient(adminApi.AdminDefinition, channel);
  return { admin, [Symbol.dispose]: () => channel.close() };
}

function credentialsFor(address: string, { ca, cert, key }: AdminClientTls): ChannelCredentials {
  const names = [parseDestination(address).host, ADMIN_SERVER_NAME];
  return ChannelCredentials.createSsl(ca, key ?? null, cert ?? null, {
    checkServerIdentity: (_host, { raw }) => {
      const certificate = certificateOf(raw);
      return names.some((name) => isFor(certificate, name))
        ? undefined
        : new Error(`it does not name ${names.join(' or ')}`);
    },
  });
}

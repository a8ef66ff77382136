import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { adminApi } from '@isthmus/proto/admin';
import { parseDestination } from '@isthmus/tunnel';
import { ChannelCredentials, createChannel, createClient } from 'nice-grpc';
import { ADMIN_SERVER_NAME, socketPathOf } from './place.ts';

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

/** A list of 100,000 tunnels is about 20 MB. */
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;

/**
 * Returns a client of the admin port at `host:port`, or on a unix socket at `unix:/path`. Without TLS settings, and on unix sockets, it uses
 * plain text, as admin ports on loopback do.
 */
export function adminClient(address: string, tls?: AdminClientTls): AdminConnection {
  const path = socketPathOf(address);
  const credentials = tls && path === undefined ? credentialsFor(address, tls) : undefined;
  // Send the name instead of an IP address in the SNI extension (RFC 6066 section 3). Deno rejects an address there.
  const named = credentials && isIP(parseDestination(address).host) !== 0;
  const channel = createChannel(path === undefined ? address : `unix://${path}`, credentials, {
    'grpc.max_receive_message_length': MAX_RESPONSE_BYTES,
    // grpc-js uses http_proxy even for loopback. Admin ports are reached directly.
    'grpc.enable_http_proxy': 0,
    ...(named && { 'grpc.ssl_target_name_override': ADMIN_SERVER_NAME }),
  });
  const admin = createClient(adminApi.AdminDefinition, channel);
  return { admin, [Symbol.dispose]: () => channel.close() };
}

function credentialsFor(address: string, { ca, cert, key }: AdminClientTls): ChannelCredentials {
  const { host } = parseDestination(address);
  return ChannelCredentials.createSsl(ca, key ?? null, cert ?? null, {
    checkServerIdentity: (_name: string, certificate: PeerCertificate) =>
      checkServerIdentity(host, certificate) && checkServerIdentity(ADMIN_SERVER_NAME, certificate),
  });
}

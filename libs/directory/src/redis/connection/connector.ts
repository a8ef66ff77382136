import { connect as connectTcp, isIP } from 'node:net';
import { clientTls, connectTls, keptAlive, lookupName, type ReadTls } from '@isthmus/runtime';
import { AbstractConnector, type RedisOptions } from 'ioredis';
import type { Credentials, HostPort } from './address.ts';
import type { Locate } from './locate.ts';

/** How long a connection may take to close gracefully, in milliseconds. */
const DISCONNECT_MS = 1_000;

/** Returns certificates for TLS. Called for every connection, so that a renewed file takes effect. */
export type TlsSource = () => ReadTls;

type NetStream = ReturnType<AbstractConnector['connect']> extends Promise<infer Stream> ? Stream : never;

/** Returns the options of a client that looks up its server for each connection. */
export function connectionOptions(locate: Locate, tls: TlsSource | undefined, user: Credentials): RedisOptions {
  return {
    ...(user.username && { username: user.username }),
    ...(user.password && { password: user.password }),
    // Setting `tls` makes the client wait for the TLS handshake.
    ...(tls && { tls: {} }),
    Connector: class extends AbstractConnector {
      constructor() {
        super(DISCONNECT_MS);
      }

      async connect(): Promise<NetStream> {
        this.connecting = true;
        const server = await locate();
        if (!this.connecting) throw new Error('disconnected while looking for the server');
        this.stream = open(server, tls);
        this.stream.once('error', (error: Error) => {
          this.firstError = error;
        });
        return this.stream;
      }
    },
  };
}

function open({ host, port }: HostPort, tls: TlsSource | undefined): NetStream {
  if (!tls) return keptAlive(connectTcp({ host, port, lookup: lookupName }));
  const options = { host, port, lookup: lookupName, ...(isIP(host) === 0 && { servername: host }) };
  return keptAlive(connectTls(options, clientTls(tls()), [host]));
}

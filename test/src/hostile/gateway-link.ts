import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import {
  type ClientHttp2Session,
  connect as connectHttp2,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { HUB_SERVER_NAME } from '@isthmus/tunnel';
import { type Identity, type Scope, until, within } from '../harness/index.ts';

/** Connects to a hub as a gateway does. */
export async function peerSocket(scope: Scope, port: number, ca: string, identity: Identity): Promise<TLSSocket> {
  const socket = connectTls({
    port,
    host: '127.0.0.1',
    servername: HUB_SERVER_NAME,
    ALPNProtocols: ['h2'],
    ca: readFileSync(ca),
    cert: readFileSync(identity.cert),
    key: readFileSync(identity.key),
  });
  scope.defer(() => socket.destroy());
  await within(once(socket, 'secureConnect'), { what: 'a TLS handshake' });
  return socket;
}

/** Connects to a hub as a gateway that may send whatever it likes. */
export async function openLink(
  scope: Scope,
  port: number,
  ca: string,
  identity: Identity,
): Promise<ClientHttp2Session> {
  const socket = await peerSocket(scope, port, ca, identity);
  const session = connectHttp2('https://hub', { createConnection: () => socket, peerMaxConcurrentStreams: 10_000 });
  session.on('error', () => {});
  scope.defer(() => session.destroy());
  return session;
}

/** Returns the head of an answer. The stream stays open if the answer allows it. */
export async function askFor(link: ClientHttp2Session, head: OutgoingHttpHeaders): Promise<IncomingHttpHeaders> {
  const stream = link.request(head, { endStream: false });
  let answer: IncomingHttpHeaders | undefined;
  let failure: Error | undefined;
  stream.on('error', (error) => {
    failure = error;
  });
  stream.once('response', (fields) => {
    answer = fields;
  });
  return until(() => answer, { what: 'an answer', hopeless: () => failure?.message });
}

/** Returns the status of an answer. */
export async function ask(link: ClientHttp2Session, head: OutgoingHttpHeaders): Promise<number> {
  return Number((await askFor(link, head))[':status']);
}

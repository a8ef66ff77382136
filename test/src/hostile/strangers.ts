import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { TcpNetConnectOpts } from 'node:net';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { newTrust, type Program, type Scope, startServer, type Trust, within } from '../harness/index.ts';
import { kubeApi } from '../plane/kube-api.ts';
import { FrameSocket, PREFACE, settings } from './frames.ts';
import { upgrade } from './links.ts';

/** An address of this machine that only attackers use. */
export const ELSEWHERE = '127.0.0.9';

/** A server that accepts agents by token; only `good` is valid. */
export async function tokenServer(scope: Scope, flags: Readonly<Record<string, string | number>> = {}) {
  const trust = await newTrust(scope);
  const kube = await kubeApi(scope, trust);
  kube.trust('good', 'kube-system:konnectivity-agent');
  const server = await startServer(scope, trust, {
    'cluster-ca-cert': undefined,
    kubeconfig: kube.kubeconfig,
    'agent-namespace': 'kube-system',
    'agent-service-account': 'konnectivity-agent',
    'authentication-audience': 'system:konnectivity-server',
    ...flags,
  });
  return { trust, server, api: kube.api, kube };
}

/** Connects to an agents' port without a certificate. Returns undefined if the server refused during the handshake. */
export async function stranger(
  scope: Scope,
  trust: Trust,
  port: number,
  protocol: 'h2' | 'http/1.1',
  localAddress = '127.0.0.1',
): Promise<TLSSocket | undefined> {
  const ca = readFileSync(trust.agents.cert);
  // Node passes these on to net.connect, whose `localAddress` its types leave out here.
  const options: ConnectionOptions & Pick<TcpNetConnectOpts, 'localAddress'> = {
    port,
    host: '127.0.0.1',
    servername: 'localhost',
    ALPNProtocols: [protocol],
    localAddress,
    ca,
  };
  const socket = connect(options);
  scope.defer(() => socket.destroy());
  socket.on('error', () => {});
  const come = first(socket, 'secureConnect').then((came) => came !== undefined);
  return (await within(come, { what: 'a TLS handshake, or its end' })) ? socket : undefined;
}

/** Connects as a stranger and starts HTTP/2. */
export async function framed(scope: Scope, trust: Trust, port: number): Promise<FrameSocket> {
  const socket = await stranger(scope, trust, port, 'h2');
  if (!socket) throw new Error('refused during its handshake');
  const frames = new FrameSocket(socket);
  await frames.send(PREFACE, settings());
  return frames;
}

/** Asks for a link with a token. @returns the status of the answer, or 0 if there was none */
export async function askForLink(socket: TLSSocket, agent: string, token: string): Promise<number> {
  socket.write(upgrade({ 'isthmus-agent': agent, authorization: `Bearer ${token}` }));
  const answer = await first(socket, 'data');
  return Number(/^HTTP\/1\.1 (\d+) /.exec(String(answer?.[0]))?.[1] ?? 0);
}

/** Returns a process's resident memory, in bytes. */
export async function memory(program: Program): Promise<number> {
  return program.value('process_resident_memory_bytes');
}

/** Returns the arguments of an event, or undefined if the connection ended first. */
function first(socket: TLSSocket, event: string): Promise<unknown[] | undefined> {
  const closed = new Promise<undefined>((resolve) => {
    socket.once('close', () => resolve(undefined));
    if (socket.closed) resolve(undefined);
  });
  return Promise.race([once(socket, event).catch(() => undefined), closed]);
}

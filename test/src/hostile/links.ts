import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { type Identity, nextChunk, type Scope, type Trust, within } from '../harness/index.ts';
import { FrameSocket, PREFACE } from './frames.ts';

export interface RogueAgentOptions {
  readonly identity?: Identity;
  /** What it sends with its request. */
  readonly glued?: Buffer;
  /** Names its process, for tunnels that can be resumed. */
  readonly instance?: string;
}

/** Does an agent's handshake up to the 101. From there on the caller is an HTTP/2 server that may do anything. */
export async function rogueAgent(
  scope: Scope,
  trust: Trust,
  port: number,
  agentId: string,
  { identity, glued = Buffer.alloc(0), instance }: RogueAgentOptions = {},
): Promise<FrameSocket> {
  const { cert, key } = identity ?? (await trust.agents.client('rogue'));
  const socket = connectTls({
    port,
    host: '127.0.0.1',
    servername: 'localhost',
    ALPNProtocols: ['http/1.1'],
    ca: readFileSync(trust.agents.cert),
    cert: readFileSync(cert),
    key: readFileSync(key),
  });
  socket.on('error', () => {});
  scope.defer(() => socket.destroy());
  await within(once(socket, 'secureConnect'), { what: 'a TLS handshake' });
  const fields = { 'isthmus-agent': agentId, 'isthmus-identifiers': `host%3D${agentId}` };
  const hello = upgrade({ ...fields, ...(instance !== undefined && { 'isthmus-instance': instance }) });
  socket.write(Buffer.concat([Buffer.from(hello), glued]));
  await head(socket, / 101 /);
  return new FrameSocket(socket, PREFACE.length);
}

export function upgrade(fields: Readonly<Record<string, string>>): string {
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
  const first = ['GET /isthmus/link HTTP/1.1', 'Host: x', 'Connection: upgrade', 'Upgrade: isthmus-link/1'];
  return [...first, ...lines, '', ''].join('\r\n');
}

/** Reads and returns a head, and leaves the bytes behind it in the socket. */
export async function head(socket: Socket, wanted = /./): Promise<string> {
  let seen = Buffer.alloc(0);
  while (!seen.includes('\r\n\r\n')) {
    seen = Buffer.concat([seen, await nextChunk(socket, `the end of a head: ${seen}`)]);
  }
  const end = seen.indexOf('\r\n\r\n') + 4;
  const text = seen.toString('latin1', 0, end);
  if (!wanted.test(text)) throw new Error(`unexpected head ${JSON.stringify(text)}`);
  if (end < seen.length) socket.unshift(seen.subarray(end));
  return text;
}

/** A hub on an agents' port: agents get `answer`, and then whatever `act` sends. */
export async function rogueHub(
  scope: Scope,
  trust: Trust,
  answer: string,
  act: (socket: FrameSocket) => void,
): Promise<number> {
  const { cert, key } = await trust.agents.server();
  const server = createTlsServer(
    { cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ['http/1.1'] },
    async (socket) => {
      socket.on('error', () => {});
      scope.defer(() => socket.destroy());
      await head(socket).catch(() => {});
      socket.write(answer);
      act(new FrameSocket(socket));
    },
  );
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  return listening(scope, server);
}

/** Opens a port that forwards each connection to the next of `ports`, and all further ones to the last. */
export async function turnstile(scope: Scope, ports: number[]): Promise<number> {
  const server = createServer((near) => {
    const port = ports.length > 1 ? ports.shift() : ports[0];
    const far = connectTcp(port as number, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('error', () => to.destroy()).on('close', () => to.destroy());
      from.pipe(to);
      scope.defer(() => from.destroy());
    }
  });
  return listening(scope, server);
}

async function listening(scope: Scope, server: import('node:net').Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.defer(() => server.close());
  return (server.address() as { port: number }).port;
}

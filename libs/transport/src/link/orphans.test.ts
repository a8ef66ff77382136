import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { type TestContext, test } from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { WIRE } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { requestHead } from './head.ts';
import { LinkServer } from './server.ts';
import { dialTcp, link, listen, readAll, request } from './testing.ts';

function reconcileEvery(ms: number, context: TestContext): void {
  const usual = WIRE.reconcileEveryMs;
  WIRE.reconcileEveryMs = ms;
  context.after(() => {
    WIRE.reconcileEveryMs = usual;
  });
}

/** A link to a peer of another make, which answers PING and every dial, and does as it likes with all else. */
async function linkToStranger(
  control: (stream: http2.ServerHttp2Stream) => void,
): Promise<{ client: LinkClient; reset: Promise<number>; orphans: () => number }> {
  const reset = Promise.withResolvers<number>();
  const stranger = http2.createServer();
  stranger.on('stream', (stream, head) => {
    stream.on('error', () => {});
    stream.respond({ ':status': 200 });
    if (head[':method'] === 'CONNECT') stream.once('close', () => reset.resolve(stream.rstCode ?? 0));
    else control(stream);
  });
  const port = await listen(stranger as unknown as net.Server);
  const socket = net.connect({ port, host: '127.0.0.1' });
  await once(socket, 'connect');
  let orphans = 0;
  const events = planeEvents().on('tunnel:orphaned', () => void orphans++);
  const client = new LinkClient({ socket, peer: 'hub h1', events });
  cleanups.push(() => client.destroy(new Error('test over')));
  return { client, reset: reset.promise, orphans: () => orphans };
}

test('an aborted tunnel is reset at a peer of another make', async () => {
  const { client, reset } = await linkToStranger(() => {});
  const { end } = await client.dial(request(1));
  end.abort(new Error('nobody wants it'));
  assert.equal(await reset, http2.constants.NGHTTP2_CANCEL);
  assert.deepEqual([client.open, client.usable], [0, true]);
});

test('a tunnel that the other side says it lacks is ended as lost', async (context) => {
  reconcileEvery(20, context);
  const { client, orphans } = await linkToStranger((stream) => {
    let text = '';
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (text + chunk).split('\n');
      text = lines.pop() as string;
      for (const line of lines) {
        const { type, streams } = JSON.parse(line);
        if (type === 'held') stream.write(`${JSON.stringify({ type: 'lacking', streams })}\n`);
      }
    });
  });
  const { end } = await client.dial(request(1));
  const [error] = await once(end.stream, 'error');
  assert.equal((error as Error).name, 'SessionLost');
  assert.equal(orphans(), 1);
});

test('a tunnel that the dialling side has forgotten is ended, and its destination with it', async () => {
  const gone = Promise.withResolvers<void>();
  const port = await listen(
    net.createServer((socket) => socket.on('error', () => {}).once('close', () => gone.resolve())),
  );
  const events = planeEvents();
  const orphans: string[] = [];
  events.on('tunnel:orphaned', (role) => orphans.push(role));
  const server = net.createServer((socket) => {
    new LinkServer({ socket, peer: 'gateway', role: 'hub', dial: dialTcp, events });
  });
  const socket = net.connect({ port: await listen(server), host: '127.0.0.1' });
  await once(socket, 'connect');
  const stranger = http2.connect('http://hub', { createConnection: () => socket });
  cleanups.push(() => stranger.destroy());
  const head = requestHead(request(port));
  const tunnels = [stranger.request(head), stranger.request(requestHead(request(port)))];
  await Promise.all(tunnels.map((tunnel) => once(tunnel.on('error', () => {}).resume(), 'response')));
  const [forgotten, kept] = tunnels as [http2.ClientHttp2Stream, http2.ClientHttp2Stream];
  const control = stranger.request({ ':method': 'POST', ':path': '/control' });
  const held = { type: 'held', from: 1, to: 1000, streams: [kept.id] };
  control.write(`${JSON.stringify(held)}\n`);
  control.write(`${JSON.stringify(held)}\n`);
  await once(forgotten, 'close');
  await gone.promise;
  assert.deepEqual([orphans, kept.destroyed], [['hub'], false]);
});

test('hundreds of tunnels that open and close during reconciliation are no orphans', async (context) => {
  reconcileEvery(5, context);
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => {}).pipe(socket)),
  );
  let orphans = 0;
  const { client, server, events } = await link(dialTcp);
  events.on('tunnel:orphaned', () => void orphans++);
  const bytes = randomBytes(64 * 1024);
  const one = async (index: number) => {
    const established = await client.dial(request(port));
    const { stream } = established.end;
    // In turn: closed in good order, with a reader that comes late, and aborted.
    if (index % 3 === 2) return established.end.abort(new Error('done'));
    stream.end(bytes);
    if (index % 3 === 1) await new Promise((resolve) => setTimeout(resolve, 30));
    assert.equal((await readAll(established)).length, bytes.length);
  };
  for (let round = 0; round < 6; round++) {
    await Promise.all(Array.from({ length: 100 }, (_, index) => one(index)));
  }
  while (client.open > 0 || server.open > 0) await new Promise(setImmediate);
  assert.equal(orphans, 0);
});

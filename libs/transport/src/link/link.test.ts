import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, mock, test } from 'node:test';
import {
  type Dial,
  DialError,
  type DialRequest,
  deferred,
  type Established,
  type PlaneEvents,
  planeEvents,
} from '@isthmus/tunnel';
import { LinkClient, type LinkClientOptions } from './client.ts';
import { encodeControl } from './control.ts';
import { attemptOf, requestHead } from './head.ts';
import { LOOK_EVERY } from './liveness.ts';
import { LinkServer } from './server.ts';
import { LinkRefused, requestLink, upgradeServer } from './upgrade.ts';

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

async function listen(server: net.Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** Opens the destination socket, as an agent does. */
const dialTcp: Dial = (request) =>
  new Promise((resolve, reject) => {
    const { host, port } = request.destination;
    const socket = net.connect({ host, port, allowHalfOpen: true });
    socket.once('error', () =>
      reject(new DialError('connection_refused', `dial tcp ${host}:${port}: connection refused`)),
    );
    socket.once('connect', () => {
      const end = { stream: socket, halfOpen: true, abort: () => socket.destroy() };
      resolve({ end, agentId: 'a ä', sessionId: 's', hubId: '', timing: { dnsMs: 0.25, connectMs: 1.5 } });
    });
  });

interface Link {
  client: LinkClient;
  server: LinkServer;
  events: PlaneEvents;
  hubSocket: Socket;
  agentSocket: Socket;
}

/** A hub that takes one agent over a real connection, and that agent. */
async function link(dial: Dial, options: Partial<LinkClientOptions> = {}): Promise<Link> {
  const events = planeEvents();
  const opened = deferred<{ client: LinkClient; hubSocket: Socket }>();
  const upgrades = upgradeServer({
    admit: async (hello) => {
      if (hello.agentId === 'unwanted') throw new LinkRefused(403, 'agent is not welcome: ünwanted');
      return { hubId: 'h1', sessionId: 's1', plane: 'p', serverCount: 3 };
    },
    open: (session, hubSocket) => {
      opened.resolve({
        client: new LinkClient({ session, socket: hubSocket, peer: 'agent a1', ...options }),
        hubSocket,
      });
    },
    refused: () => {},
  });
  const port = await listen(net.createServer({ allowHalfOpen: true }, (socket) => upgrades.accept(socket)));
  const socket = net.connect({ port, host: '127.0.0.1' });
  await once(socket, 'connect');
  const { session, hello } = await requestLink(socket, 'hub', {
    agentId: 'a1',
    identifiers: 'host=x',
    tenant: 'default',
    version: '1',
  });
  assert.deepEqual(hello, { hubId: 'h1', sessionId: 's1', plane: 'p', serverCount: 3 });
  const server = new LinkServer({ session, socket, peer: 'hub h1', role: 'agent', dial, events });
  const { client, hubSocket } = await opened.promise;
  cleanups.push(() => client.destroy(new Error('test over')));
  return { client, server, events, hubSocket, agentSocket: socket };
}

let ids = 0;
function request(port: number, signal = new AbortController().signal): DialRequest {
  const id = (++ids).toString(16).padStart(16, '0');
  const destination = { host: '127.0.0.1', port };
  return { id, tenant: 'default', destination, deadline: performance.now() + 5000, session: 's1', signal };
}

/** By its events, as a splice does: on Node 26.3 and later the iterator of a stream that was closed before it was read fails behind the last byte. */
async function readAll({ end: { stream } }: Established): Promise<Buffer> {
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve, reject) => {
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.once('end', resolve).once('error', reject);
    stream.once('close', () => reject(new Error(`closed before its end, after ${Buffer.concat(chunks).length} bytes`)));
  });
  return Buffer.concat(chunks);
}

test('a dial through a link reaches the destination and carries bytes, half-close and timing', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      const hash = createHash('sha256');
      socket.on('data', (chunk) => hash.update(chunk));
      socket.once('end', () => socket.end(hash.digest()));
    }),
  );
  const { client } = await link(dialTcp);
  const established = await client.dial(request(port));
  assert.equal(established.agentId, 'a ä');
  assert.deepEqual(established.timing, { dnsMs: 0.25, connectMs: 1.5 });
  const bytes = randomBytes(5_000_000);
  established.end.stream.end(bytes);
  assert.deepEqual(await readAll(established), createHash('sha256').update(bytes).digest());
});

test('a refusal arrives with its RFC 9209 name and its text', async () => {
  const { client } = await link(dialTcp);
  const closed = await listen(net.createServer());
  cleanups.pop()?.();
  await assert.rejects(client.dial(request(closed)), {
    name: 'DialError',
    code: 'connection_refused',
    message: `dial tcp 127.0.0.1:${closed}: connection refused`,
    retryable: false,
  });
});

test('an aborted tunnel ends the destination socket, two thousand times without harm to the link', async () => {
  let open = 0;
  const port = await listen(
    net.createServer((socket) => {
      open++;
      socket.on('error', () => {});
      socket.once('close', () => open--);
      socket.write('x');
    }),
  );
  const { client, server } = await link(dialTcp);
  for (let round = 0; round < 20; round++) {
    const tunnels = await Promise.all(Array.from({ length: 100 }, () => client.dial(request(port))));
    const closed = tunnels.map(({ end }) => once(end.stream, 'close'));
    for (const { end } of tunnels) end.abort(new Error('caller went away'));
    await Promise.all(closed);
  }
  while (open > 0 || server.open > 0) await new Promise(setImmediate);
  assert.equal(client.open, 0);
  const after = await client.dial(request(port));
  after.end.abort(new Error('done'));
});

test('a caller that vanishes while the agent still dials ends the dial at the agent', async () => {
  const dialled = deferred<void>();
  const aborted = deferred<void>();
  const { client } = await link(
    ({ signal }) =>
      new Promise((_, reject) => {
        dialled.resolve();
        signal.addEventListener('abort', () => {
          aborted.resolve();
          reject(new DialError('connection_terminated', 'gone'));
        });
      }),
  );
  const caller = new AbortController();
  const dial = client.dial(request(1, caller.signal));
  void dialled.promise.then(() => caller.abort());
  await assert.rejects(dial, { code: 'connection_terminated', message: 'the caller went away' });
  await aborted.promise;
});

test('an abort that overtakes its dial still ends it', async () => {
  const { client, server } = await link(() => new Promise(() => {}));
  const early = request(1);
  client.sendLine(encodeControl({ type: 'abort', dial: attemptOf(early) }));
  // A second dial on the same stream order proves that the abort was read before the first is sent.
  await assert.rejects(client.dial({ ...request(1), tenant: '' }), { code: 'http_request_error' });
  await assert.rejects(client.dial(early), { code: 'connection_terminated' });
  assert.equal(server.open, 0);
});

test('an acknowledgement arrives before the answer', async () => {
  const acknowledged = deferred<void>();
  const { client } = await link(async (dial) => {
    dial.acknowledged?.();
    await acknowledged.promise;
    throw new DialError('connection_refused', 'dial tcp 127.0.0.1:1: connect: connection refused');
  });
  const dial = client.dial({ ...request(1), acknowledged: () => acknowledged.resolve() });
  await assert.rejects(dial, { code: 'connection_refused' });
});

test('a dial without an answer ends at its deadline', async () => {
  const { client } = await link(() => new Promise(() => {}));
  const soon = { ...request(1), deadline: performance.now() + 50 };
  await assert.rejects(client.dial(soon), { code: 'connection_timeout', expired: true });
});

test('a lost link ends its tunnels as lost and its pending dials as retryable', async () => {
  const port = await listen(net.createServer(() => {}));
  const { client, hubSocket } = await link((dial) =>
    dial.destination.port === 1 ? new Promise(() => {}) : dialTcp(dial),
  );
  const { end } = await client.dial(request(port));
  const pending = assert.rejects(client.dial(request(1)), { code: 'connection_terminated', retryable: true });
  const failed = once(end.stream, 'error');
  hubSocket.destroy();
  assert.equal(((await failed)[0] as Error).name, 'SessionLost');
  await pending;
  await client.closed;
  await assert.rejects(client.dial(request(port)), { code: 'connection_terminated', retryable: true });
});

/** Lets time pass for what watches a link; what the link sends meanwhile arrives. */
async function pass(ms: number, { hubSocket, agentSocket }: Link): Promise<void> {
  const inFlight = () =>
    hubSocket.bytesWritten !== agentSocket.bytesRead || agentSocket.bytesWritten !== hubSocket.bytesRead;
  for (let passed = 0; passed < ms; passed += LOOK_EVERY) {
    mock.timers.tick(LOOK_EVERY);
    do await new Promise(setImmediate);
    while (inFlight());
  }
}

test('a link that closes keeps a silent tunnel for longer than a dead one would be kept', async () => {
  mock.timers.enable({ apis: ['setInterval'] });
  cleanups.push(() => mock.timers.reset());
  const port = await listen(net.createServer((socket) => socket.on('error', () => {}).pipe(socket)));
  for (const half of ['client', 'server'] as const) {
    const both = await link(dialTcp);
    const { end } = await both.client.dial(request(port));
    both[half].close();
    await pass(10_000, both);
    end.stream.write('x');
    assert.equal(String((await once(end.stream, 'data'))[0]), 'x');
    end.abort(new Error('done'));
    await both.client.closed;
  }
});

test('attempts of one dial through two sessions share a link, and each is aborted alone', async () => {
  const port = await listen(net.createServer((socket) => socket.on('error', () => {}).pipe(socket)));
  let silent = 0;
  const { client, server } = await link((dial) => {
    if (dial.session !== 's1') return dialTcp(dial);
    silent++;
    return new Promise((_, reject) => dial.signal.addEventListener('abort', () => reject(new Error('aborted'))));
  });
  for (let round = 0; round < 100; round++) {
    const slower = new AbortController();
    const first = request(port, slower.signal);
    const lost = assert.rejects(client.dial(first), { code: 'connection_terminated' });
    const { end } = await client.dial({ ...first, session: 's2', signal: new AbortController().signal });
    slower.abort();
    await lost;
    while (server.open > 1) await new Promise(setImmediate);
    end.stream.write('x');
    assert.equal(String((await once(end.stream, 'data'))[0]), 'x');
    end.abort(new Error('done'));
  }
  assert.equal(silent, 100);
});

test('the FIN of a killed agent ends the link, and the FIN of a killed hub', async () => {
  const { client, agentSocket } = await link(dialTcp);
  agentSocket.destroy();
  // At once, and not only when PING has no answer. (A write that finds it out first gives its own reason.)
  assert.match((await client.closed).message, /^agent a1: (connection closed|write EPIPE)$/);
  assert.equal(client.usable, false);

  const { server, hubSocket } = await link(dialTcp);
  hubSocket.destroy();
  assert.match((await server.closed).message, /^hub h1: (connection closed|write EPIPE)$/);
});

test('what is not a dial is refused and disturbs nothing', async () => {
  const { client } = await link(dialTcp);
  const bad = { ...request(1), tenant: '' };
  await assert.rejects(client.dial(bad), { code: 'http_request_error' });
  await assert.rejects(client.dial({ ...request(1), destination: { host: '', port: 1 } }), {
    code: 'http_request_error',
  });
  while (client.open > 0) await new Promise(setImmediate);
});

test('a connection that breaks during the Upgrade is a failure to its caller alone', async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', note);
  cleanups.push(() => process.off('unhandledRejection', note));
  const socket = net.connect(await listen(net.createServer()), '127.0.0.1');
  await once(socket, 'connect');
  const hello = { agentId: 'a1', identifiers: '', tenant: 'default', version: '1' };
  await assert.rejects(requestLink(socket.destroy(), 'hub', hello));
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(unhandled, []);
});

const RECONCILE_EVERY_MS = 20;

/** A link to a peer of another make, which answers PING and every dial, and does as it likes with all else. */
async function linkToStranger(
  control: (stream: http2.ServerHttp2Stream) => void,
): Promise<{ client: LinkClient; reset: Promise<number>; orphans: () => number }> {
  const reset = deferred<number>();
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
  const session = http2.connect('http://stranger', { createConnection: () => socket });
  let orphans = 0;
  const orphaned = () => void orphans++;
  const client = new LinkClient({ session, socket, peer: 'hub h1', orphaned, reconcileEvery: RECONCILE_EVERY_MS });
  cleanups.push(() => client.destroy(new Error('test over')));
  return { client, reset: reset.promise, orphans: () => orphans };
}

test('a tunnel whose abort the other side ignores is reset, and the link goes on', async () => {
  const { client, reset, orphans } = await linkToStranger(() => {});
  const { end } = await client.dial(request(1));
  end.abort(new Error('nobody wants it'));
  assert.equal(await reset, http2.constants.NGHTTP2_CANCEL);
  assert.deepEqual([orphans(), client.open, client.usable], [1, 0, true]);
});

test('a link that closes sends no PING, so no abort on it is taken for ignored', async () => {
  mock.timers.enable({ apis: ['setInterval'] });
  cleanups.push(() => mock.timers.reset());
  const { client, orphans } = await linkToStranger(() => {});
  const [{ end }] = await Promise.all([client.dial(request(1)), client.dial(request(1))]);
  client.close();
  end.abort(new Error('nobody wants it'));
  for (let round = 0; round < 5; round++) {
    mock.timers.tick(RECONCILE_EVERY_MS);
    await new Promise(setImmediate);
  }
  assert.deepEqual([orphans(), client.open], [0, 2]);
});

test('a tunnel that the other side says it lacks is ended as lost', async () => {
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
  const gone = deferred<void>();
  const port = await listen(
    net.createServer((socket) => socket.on('error', () => {}).once('close', () => gone.resolve())),
  );
  const events = planeEvents();
  const orphans: string[] = [];
  events.on('tunnel:orphaned', (role) => orphans.push(role));
  const server = http2.createServer();
  server.on('session', (session) => {
    new LinkServer({ session, socket: session.socket as Socket, peer: 'gateway', role: 'hub', dial: dialTcp, events });
  });
  const socket = net.connect({ port: await listen(server as unknown as net.Server), host: '127.0.0.1' });
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

test('thousands of tunnels that open and close during reconciliation are no orphans', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => {}).pipe(socket)),
  );
  let orphans = 0;
  const { client, server, events } = await link(dialTcp, { reconcileEvery: 5, orphaned: () => void orphans++ });
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
  for (let round = 0; round < 30; round++) {
    await Promise.all(Array.from({ length: 100 }, (_, index) => one(index)));
  }
  while (client.open > 0 || server.open > 0) await new Promise(setImmediate);
  assert.equal(orphans, 0);
});

// Deno 2.9 ends such a stream with its socket.
const skip = 'Deno' in globalThis;

test('a tunnel that has ended is read to its end, however slowly, after its link went', { skip }, async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.end(Buffer.alloc(900_000, 1));
      socket.resume();
    }),
  );
  const { client, server } = await link(dialTcp);
  const established = await client.dial(request(port));
  const { stream } = established.end;
  stream.end();
  while (server.open > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(client.open, 1);
  server.close();
  await client.closed;
  assert.equal((await readAll(established)).length, 900_000);
  await assert.rejects(async () => client.dial(request(port)), { code: 'connection_terminated' });
});

test('many tunnels that stall at once hold less each, and the last one still works', async () => {
  let pulled = 0;
  /** An endless source that nobody reads at the other side. */
  const endless: Dial = async () => {
    const stream = new Duplex({
      read() {
        pulled += 16_384;
        this.push(Buffer.alloc(16_384));
      },
      write: (_chunk, _encoding, done) => done(),
    });
    const end = { stream, halfOpen: true, abort: () => void stream.destroy() };
    return { end, agentId: 'a', sessionId: 's', hubId: '', timing: {} };
  };
  const { client } = await link(endless);
  const stalled = await Promise.all(Array.from({ length: 200 }, () => client.dial(request(1))));
  const settled = async () => {
    for (let before = -1; before !== pulled; ) {
      before = pulled;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  await settled();
  // Both halves of the link are in this process, so 400 ends share the budget of 128 MiB: 256 KiB each, and what streams buffer
  // beside their windows. With the largest window it would be more than 1 MiB each.
  assert.ok(pulled < 200 * 768 * 1024, `${pulled} bytes held for 200 stalled tunnels`);
  const one = await client.dial(request(1));
  one.end.stream.resume();
  const before = pulled;
  while (pulled - before < 10_000_000) await once(one.end.stream, 'data');
  for (const { end } of [...stalled, one]) end.abort(new Error('test over'));
});

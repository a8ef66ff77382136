import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http2 from 'node:http2';
import net, { type Socket } from 'node:net';
import { mock, test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { CUT_BY, DialAbort, type Established, PlaneEnded, planeEvents, TunnelTable } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { WIRE } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { LinkClient } from './client.ts';
import { dialTcp, type Link, link, listen, readAll, request } from './testing.ts';

test('a lost link ends its tunnels as lost and its pending dials as retryable', async () => {
  const port = await listen(net.createServer(() => {}));
  const { client, hubSocket } = await link((dial) =>
    dial.destination.port === 1 ? new Promise(() => {}) : dialTcp(dial),
  );
  const { end } = await client.dial(request(port));
  // Named once, whatever finds it out first.
  const message = /^agent a1: (?!agent)/;
  const lost = { code: 'connection_terminated', retryable: true, message };
  const pending = assert.rejects(client.dial(request(1)), lost);
  const failed = once(streamOf(end), 'error');
  hubSocket.destroy();
  assert.equal(((await failed)[0] as Error).name, 'HungUp');
  await pending;
  await client.closed;
  await assert.rejects(client.dial(request(port)), lost);
});

test('what one half of a link ends for the plane, the other counts as ended by the plane, by the same cause, and an ordinary abort not', async () => {
  const port = await listen(net.createServer((socket) => socket.on('error', () => {}).resume()));
  const { client, events } = await link(dialTcp);
  const tunnels = new TunnelTable(events);
  const ended = async (reason: Error) => {
    const outcome = once(events, 'tunnel:close');
    const { end } = await client.dial(request(port));
    end.abort(reason);
    const [, { by, error }] = await outcome;
    return [by, error?.message];
  };
  assert.deepEqual(await ended(new Error('enough')), ['caller', 'caller went away']);
  assert.deepEqual(await ended(new PlaneEnded('kicked', { by: 'operator' })), [
    'operator',
    'hub h1 ended the tunnel: its log says why',
  ]);
  assert.deepEqual(await ended(new PlaneEnded('kicked')), ['path', 'hub h1 ended the tunnel: its log says why']);

  for (const by of CUT_BY) {
    const { end } = await client.dial(request(port));
    const failed = once(streamOf(end), 'error');
    tunnels.abortEach(({ role }) => role === 'agent', new PlaneEnded('cut', { by }));
    const [failure] = await failed;
    assert.equal((failure as PlaneEnded).by, by);
  }
});

/** A tunnel through a link, or a dial that has no answer yet. */
interface Begun {
  readonly answered: Promise<Established>;
  readonly abort: AbortController;
  /** The destination's socket, once it is there. */
  readonly socket: () => Promise<Socket>;
}

const ENDS: Readonly<Record<string, (begun: Begun) => unknown>> = {
  'both ends, the caller first': async ({ answered, socket }) => {
    const { end } = await answered;
    streamOf(end).resume().end();
    (await socket()).end();
  },
  'both ends, the destination first': async ({ answered, socket }) => {
    const { end } = await answered;
    (await socket()).end();
    await once(streamOf(end).resume(), 'end');
    streamOf(end).end();
  },
  'the caller’s abort': async ({ answered }) => (await answered).end.abort(new Error('enough')),
  'the caller’s abort after its end': async ({ answered }) => {
    const { end } = await answered;
    streamOf(end).end();
    end.abort(new Error('enough'));
  },
  'the caller’s abort of what its reader never read': async ({ answered, socket }) => {
    const { end } = await answered;
    (await socket()).end(Buffer.alloc(256 * 1024));
    await once(streamOf(end), 'readable');
    end.abort(new Error('enough'));
  },
  'the destination’s reset': async ({ answered, socket }) => {
    const { end } = await answered;
    (await socket()).resetAndDestroy();
    await once(streamOf(end).resume(), 'close');
  },
  'the plane': async ({ answered }) => (await answered).end.abort(new PlaneEnded('kicked', { by: 'operator' })),
  'its caller before the answer': ({ abort }) => abort.abort(new Error('gone')),
  'its caller while the answer is on its way': async ({ answered, abort, socket }) => {
    await socket();
    abort.abort(new Error('gone'));
    // It may have come before.
    const late = await answered.catch(() => undefined);
    late?.end.abort(new Error('gone'));
  },
};

for (const [by, ends] of Object.entries(ENDS)) {
  test(`a tunnel that is ended by ${by} is over at both sides of its link, and its destination with it`, async () => {
    const sockets: Socket[] = [];
    const destinations = net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => {}).on('close', () => closed++);
      // As a destination that answers until its peer has ended.
      socket.resume().on('end', () => socket.end());
      sockets.push(socket);
    });
    let closed = 0;
    const port = await listen(destinations);
    const { client, server } = await link(dialTcp);
    const abort = new AbortController();
    const answered = client.dial(request(port, abort.signal));
    answered.catch(() => {});
    await ends({ answered, abort, socket: () => until(() => sockets[0], 'the destination') });
    await until(() => client.open === 0 && server.open === 0 && closed === sockets.length, 'the end at both sides');
    assert.ok(client.usable);
  });
}

test('hundreds of tunnels that open and close at once leave nothing at either side of their link', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => {}).pipe(socket)),
  );
  const { client, server } = await link(dialTcp);
  const bytes = randomBytes(64 * 1024);
  const one = async (index: number) => {
    const established = await client.dial(request(port));
    const stream = streamOf(established.end);
    // In turn: closed in good order, with a reader that comes late, and aborted.
    if (index % 3 === 2) return established.end.abort(new Error('done'));
    stream.end(bytes);
    if (index % 3 === 1) await once(stream, 'readable');
    assert.equal((await readAll(established)).length, bytes.length);
  };
  for (let round = 0; round < 6; round++) {
    await Promise.all(Array.from({ length: 100 }, (_, index) => one(index)));
  }
  await until(() => client.open === 0 && server.open === 0, 'the end of all');
});

test('an aborted tunnel is reset at a peer of another make', async () => {
  const reset = Promise.withResolvers<number>();
  const stranger = http2.createServer();
  stranger.on('stream', (stream, head) => {
    stream.on('error', () => {}).respond({ ':status': 200 });
    if (head[':method'] === 'CONNECT') stream.once('close', () => reset.resolve(stream.rstCode ?? 0));
  });
  const socket = net.connect({ port: await listen(stranger as unknown as net.Server), host: '127.0.0.1' });
  await once(socket, 'connect');
  const client = new LinkClient({ socket, peer: 'hub h1', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  const { end } = await client.dial(request(1));
  end.abort(new Error('nobody wants it'));
  assert.equal(await reset.promise, http2.constants.NGHTTP2_CANCEL);
  assert.deepEqual([client.open, client.usable], [0, true]);
});

test('a refused dial leaves nothing on its link, also if the peer does not end its refusal', async () => {
  const reset = Promise.withResolvers<number>();
  const stranger = http2.createServer();
  stranger.on('stream', (stream, head) => {
    stream.on('error', () => {}).respond({ ':status': head[':method'] === 'CONNECT' ? 503 : 200 });
    if (head[':method'] === 'CONNECT') stream.once('close', () => reset.resolve(stream.rstCode ?? 0));
  });
  const socket = net.connect({ port: await listen(stranger as unknown as net.Server), host: '127.0.0.1' });
  await once(socket, 'connect');
  const client = new LinkClient({ socket, peer: 'agent a1', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  await assert.rejects(client.dial(request(1)), { message: 'answered with status 503' });
  assert.deepEqual([client.open, client.usable], [0, true]);
  assert.equal(await reset.promise, http2.constants.NGHTTP2_CANCEL);
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

/** Lets time pass until neither side has sent anything between two looks. */
async function fallsSilent(both: Link): Promise<void> {
  const sent = () => both.hubSocket.bytesWritten + both.agentSocket.bytesWritten;
  for (let before = -1, quiet = 0; quiet < 2; before = sent()) {
    await pass(WIRE.checkEveryMs, both);
    quiet = sent() === before ? quiet + 1 : 0;
  }
}

test('a link that was reset with nothing unread was reset on the way, and otherwise perhaps by a process that died', async () => {
  mockChecks();
  const quiet = await link(dialTcp);
  await fallsSilent(quiet);
  quiet.agentSocket.resetAndDestroy();
  assert.equal((await quiet.client.closed).name, 'LinkReset');
  const busy = await link(dialTcp);
  await fallsSilent(busy);
  const { bytesWritten } = busy.hubSocket;
  busy.client.dial(request(1)).catch(() => {});
  while (busy.hubSocket.bytesWritten === bytesWritten) await new Promise(setImmediate);
  busy.agentSocket.resetAndDestroy();
  assert.equal((await busy.client.closed).name, 'HungUp');
});

test('a process that heard nothing for long, as we did, has perhaps closed the link itself, and may be alive', {
  skip: 'Deno' in globalThis && 'not shown on Deno',
}, async () => {
  mockChecks();
  const both = await link(dialTcp);
  await settled(both);
  // A network that lost everything is back: what was sent meanwhile arrives at a socket that is closed for that.
  mock.timers.tick(WIRE.checkEveryMs * 7);
  both.client.dial(request(1)).catch(() => {});
  both.agentSocket.resetAndDestroy();
  assert.equal((await both.client.closed).name, 'LinkReset');
});

test('a link says how a gateway went that did not say goodbye', async () => {
  mockChecks();
  const gateway = '0123456789abcdef';
  const reset = await link(dialTcp, { gatewayInstance: gateway });
  await fallsSilent(reset);
  reset.hubSocket.resetAndDestroy();
  assert.deepEqual(reset.server.lossFor(await reset.server.closed), { gateway, reset: true });
  const closed = await link(dialTcp, { gatewayInstance: gateway });
  await fallsSilent(closed);
  closed.hubSocket.destroy();
  assert.deepEqual(closed.server.lossFor(await closed.server.closed), { gateway, reset: false });
  const polite = await link(dialTcp, { gatewayInstance: gateway });
  await fallsSilent(polite);
  polite.client.close();
  assert.equal(polite.server.lossFor(await polite.server.closed), undefined);
});

test('a link that was closed stays closed, though what comes after is answered by a reset', async () => {
  const { client, agentSocket } = await link(dialTcp);
  agentSocket.destroy();
  client.dial(request(1)).catch(() => {});
  assert.equal((await client.closed).name, 'HungUp');
});

const PATIENT = { ping: { seconds: 300, atRest: false } };
const RESTING = { ping: { seconds: 5, atRest: true } };
/** At rest, it would be 11.25 s. */
const SILENT = /silent for [45](\.\d+)? s, even to PING/;

test('a side that closes a link because it hears nothing says so, and so does not count as dead', async () => {
  mockChecks();
  for (const hears of ['server', 'client'] as const) {
    // Only one of them loses its patience here.
    const both = await (hears === 'server' ? link(dialTcp, PATIENT) : link(dialTcp, {}, PATIENT));
    await settled(both);
    assert.match(await silence(6000, both[hears]), SILENT);
    const reason = await both[hears === 'server' ? 'client' : 'server'].closed;
    assert.equal(reason.name, 'SessionLost');
    assert.match(reason.message, SILENT);
  }
});

test('a dial on a link at rest makes its side ask as usual, even if it was given up', async () => {
  mockChecks();
  const both = await link(dialTcp, RESTING, PATIENT);
  await settled(both);
  const { client } = both;
  assert.equal(await silence(4500, client), 'still open');
  const abort = new DialAbort();
  client.dial({ ...request(1), signal: abort }).catch(() => {});
  abort.abort();
  assert.equal(client.open, 0);
  // It was silent before the dial too; at rest, it would live for 11.25 s.
  assert.match(await silence(6000, client), /silent for ([5-9]|10)(\.\d+)? s, even to PING/);
});

test('an agent with a tunnel on a link at rest asks as usual', async () => {
  const port = await listen(net.createServer((socket) => socket.on('error', () => {})));
  mockChecks();
  const both = await link(dialTcp, PATIENT, RESTING);
  await settled(both);
  const { client, server } = both;
  assert.equal(await silence(4500, server), 'still open');
  await client.dial(request(port));
  assert.match(await silence(6000, server), SILENT);
});

/** Time passes for what watches links only where a test says so, and a round trip takes next to none, however busy the machine is. */
function mockChecks(): void {
  mock.timers.enable({ apis: ['setInterval'] });
  let now = performance.now();
  const clock = mock.method(performance, 'now', () => {
    now += 0.01;
    return now;
  });
  cleanups.push(() => {
    mock.timers.reset();
    clock.mock.restore();
  });
}

/** Lets time pass in which nothing arrives, and returns why the link has ended: `still open` if it has not. */
async function silence(ms: number, { closed }: { readonly closed: Promise<Error> }): Promise<string> {
  for (let passed = 0; passed < ms; passed += WIRE.checkEveryMs) mock.timers.tick(WIRE.checkEveryMs);
  let ended = 'still open';
  void closed.then(({ message }) => {
    ended = message;
  });
  for (let tick = 0; tick < 10; tick++) await new Promise(setImmediate);
  return ended;
}

/** Waits until both sides know the link's round-trip time: their first PINGs are answered. */
async function settled(both: Link): Promise<void> {
  while (both.client.rtt === undefined) await new Promise(setImmediate);
  await pass(WIRE.checkEveryMs, both);
}

/** Lets time pass for what watches a link; what the link sends meanwhile arrives. */
async function pass(ms: number, { hubSocket, agentSocket }: Link): Promise<void> {
  const inFlight = () =>
    hubSocket.bytesWritten !== agentSocket.bytesRead || agentSocket.bytesWritten !== hubSocket.bytesRead;
  for (let passed = 0; passed < ms; passed += WIRE.checkEveryMs) {
    mock.timers.tick(WIRE.checkEveryMs);
    do await new Promise(setImmediate);
    while (inFlight());
  }
}

test('a link that closes keeps a silent tunnel for longer than a dead one would be kept', async () => {
  mockChecks();
  const port = await listen(net.createServer((socket) => socket.on('error', () => {}).pipe(socket)));
  for (const half of ['client', 'server'] as const) {
    const both = await link(dialTcp);
    const { end } = await both.client.dial(request(port));
    both[half].close();
    await pass(10_000, both);
    streamOf(end).write('x');
    assert.equal(String((await once(streamOf(end), 'data'))[0]), 'x');
    end.abort(new Error('done'));
    await both.client.closed;
  }
});

test('a tunnel that both sides have ended, and that nobody reads any more, is let go by its abort', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.end(Buffer.alloc(60_000, 1));
      socket.resume();
    }),
  );
  const { client, server } = await link(dialTcp);
  const { end } = await client.dial(request(port));
  let closed = 0;
  const nothing = () => {};
  end.use({ onData: nothing, onDrain: nothing, onEnd: nothing, onClose: () => closed++ }, 'acme');
  end.pause();
  end.finish(false);
  await until(() => client.open === 0 && server.open === 0, 'the end of both sides');
  assert.equal(closed, 0);
  end.abort(new Error('the caller went away'));
  assert.equal(closed, 1);
});

test('a tunnel that has ended is read to its end, however slowly, after its link went', async () => {
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.end(Buffer.alloc(60_000, 1));
      socket.resume();
    }),
  );
  const { client, server } = await link(dialTcp);
  const established = await client.dial(request(port));
  const stream = streamOf(established.end);
  stream.end();
  while (server.open > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  server.close();
  await client.closed;
  assert.equal((await readAll(established)).length, 60_000);
  await assert.rejects(async () => client.dial(request(port)), { code: 'connection_terminated' });
});

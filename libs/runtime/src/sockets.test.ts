import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo, Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { type TestContext, test } from 'node:test';
import {
  answerTo,
  connectFirst,
  connectTo,
  destroyOnceRead,
  onceClosed,
  onRead,
  wholeOf,
  writeCoalesced,
} from './sockets.ts';
import { until } from './testing.ts';

type Done = (error?: Error | null) => void;

/** A socket that leads nowhere. It records the size of each write that the system would get, in KiB. */
class Recorder extends Socket {
  readonly writes: number[] = [];
  /** While this is true, writes wait. */
  full = false;
  #done: Done | undefined;

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#take(chunk.length, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#take(
      chunks.reduce((sum, { chunk }) => sum + chunk.length, 0),
      done,
    );
  }

  drain(): void {
    this.full = false;
    this.#done?.();
  }

  #take(bytes: number, done: Done): void {
    this.writes.push(bytes / 1024);
    if (this.full) this.#done = done;
    else done();
  }
}

const record = Buffer.alloc(16 * 1024);
const tick = () => new Promise((resolve) => setImmediate(resolve));

test('what flows is taken as it is read, and never before what waits in the stream', async () => {
  const socket = new Socket();
  const taken: string[] = [];
  const read = (text: string) => socket.push(Buffer.from(text));
  socket.unshift(Buffer.from('put back'));
  const stop = onRead(socket, (chunk) => taken.push(String(chunk)));
  read('behind it');
  assert.deepEqual(taken, []);
  await tick();
  assert.equal(taken.splice(0).join(), 'put back,behind it');
  assert.equal(read('at once'), true);
  assert.deepEqual(taken.splice(0), ['at once']);
  socket.pause();
  read('paused');
  socket.resume();
  read('resumed');
  assert.deepEqual(taken, []);
  await tick();
  assert.equal(taken.splice(0).join(), 'paused,resumed');
  stop();
  read('nobody listens');
  await tick();
  assert.deepEqual(taken, []);
});

test('bulk of one tick leaves in one write, and bulk of the next tick in another', async () => {
  const socket = new Recorder();
  for (let i = 0; i < 3; i++) assert.ok(writeCoalesced(socket, record));
  assert.deepEqual(socket.writes, []);
  await tick();
  assert.deepEqual(socket.writes, [48]);
  writeCoalesced(socket, record);
  await tick();
  assert.deepEqual(socket.writes, [48, 16]);
});

test('a short message leaves at once, unless bulk before it still waits', async () => {
  const socket = new Recorder();
  const message = Buffer.alloc(1024);
  writeCoalesced(socket, message);
  assert.deepEqual(socket.writes, [1]);
  writeCoalesced(socket, record);
  writeCoalesced(socket, message);
  assert.deepEqual(socket.writes, [1]);
  await tick();
  assert.deepEqual(socket.writes, [1, 17]);
});

test('a read’s worth does not wait for the end of the tick', async () => {
  const socket = new Recorder();
  for (let i = 0; i < 9; i++) assert.ok(writeCoalesced(socket, record));
  assert.deepEqual(socket.writes, [64, 64]);
  await tick();
  assert.deepEqual(socket.writes, [64, 64, 16]);
});

test('a socket that takes nothing asks its writer to pause once it holds a read’s worth, and says when to go on', async () => {
  const socket = new Recorder();
  socket.full = true;
  assert.deepEqual(
    [1, 2, 3, 4].map(() => writeCoalesced(socket, record)),
    [true, true, true, false],
  );
  const drained = once(socket, 'drain');
  socket.drain();
  await drained;
  assert.ok(writeCoalesced(socket, record));
  await tick();
  assert.deepEqual(socket.writes, [64, 16]);
});

test('gathered data leaves before the end, and a socket destroyed meanwhile disturbs no other', async () => {
  const [ended, destroyed, other] = [new Recorder(), new Recorder(), new Recorder()];
  for (const socket of [ended, destroyed, other]) writeCoalesced(socket, record);
  ended.end();
  assert.deepEqual(ended.writes, [16]);
  destroyed.destroy();
  await tick();
  assert.deepEqual([destroyed.writes, other.writes], [[], [16]]);
});

const lost = new Error('lost');

/** Returns a stream with two unread pieces, what its reader gets, and how it ends. */
function unread() {
  const stream = new PassThrough();
  stream.write('one');
  stream.write('two');
  const read: string[] = [];
  const ended = new Promise<Error | undefined>((resolve) => {
    stream.once('error', resolve).once('end', () => resolve(undefined));
  });
  return { stream, read, ended };
}

test('a stream that nobody has begun to read is destroyed once its reader has everything', async () => {
  const { stream, read, ended } = unread();
  destroyOnceRead(stream, lost);
  await new Promise(setImmediate);
  assert.equal(stream.destroyed, false);
  stream.on('data', (piece) => read.push(String(piece)));
  assert.equal(await ended, lost);
  assert.deepEqual(read, ['one', 'two']);
});

test('a paused stream is destroyed once its reader has everything, however slowly it reads', async () => {
  const { stream, read, ended } = unread();
  stream.on('data', (piece) => {
    read.push(String(piece));
    stream.pause();
    setImmediate(() => stream.resume());
  });
  stream.pause();
  destroyOnceRead(stream, lost);
  stream.resume();
  assert.equal(await ended, lost);
  assert.deepEqual(read, ['one', 'two']);
});

test('a stream without unread bytes is destroyed at once', async () => {
  const stream = new PassThrough();
  destroyOnceRead(stream);
  assert.equal(stream.destroyed, true);
});

/** Sockets that connect and fail when the test says so. */
class Attempts {
  readonly opened: { readonly address: string; readonly socket: Socket }[] = [];

  readonly open = (address: string): Socket => {
    const socket = new net.Socket();
    this.opened.push({ address, socket });
    return socket;
  };

  of(address: string): Socket {
    const found = this.opened.find((each) => each.address === address);
    assert.ok(found, `${address} was not tried`);
    return found.socket;
  }

  get addresses(): readonly string[] {
    return this.opened.map(({ address }) => address);
  }
}

function started(context: TestContext, addresses: readonly string[]) {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  // Deno leaves them to the next test.
  context.after(() => context.mock.timers.reset());
  const attempts = new Attempts();
  const outcomes: unknown[] = [];
  const tell = (outcome: unknown) => outcomes.push(outcome);
  const giveUp = connectFirst(addresses, { open: attempts.open, connected: tell, failed: tell });
  return { attempts, outcomes, giveUp };
}

test('no attempt is given up while others may be dead: the slow first of two addresses connects', (context) => {
  const { attempts, outcomes } = started(context, ['slow', 'dead']);
  assert.deepEqual(attempts.addresses, ['slow']);
  context.mock.timers.tick(249);
  assert.deepEqual(attempts.addresses, ['slow']);
  context.mock.timers.tick(1);
  assert.deepEqual(attempts.addresses, ['slow', 'dead']);
  context.mock.timers.tick(750);
  assert.equal(attempts.of('slow').destroyed, false);
  attempts.of('slow').emit('connect');
  assert.deepEqual(outcomes, [attempts.of('slow')]);
  assert.equal(attempts.of('dead').destroyed, true);
  assert.equal(attempts.of('slow').destroyed, false);
});

test('the next address is tried at once if one refuses, and if all do, the errors come in the order of the addresses', (context) => {
  const { attempts, outcomes } = started(context, ['a', 'b', 'c']);
  context.mock.timers.tick(250);
  attempts.of('b').emit('error', new Error('b refused'));
  assert.deepEqual(attempts.addresses, ['a', 'b', 'c']);
  attempts.of('c').emit('error', new Error('c refused'));
  assert.equal(outcomes.length, 0);
  attempts.of('a').emit('error', new Error('a refused'));
  const [error] = outcomes;
  assert.ok(error instanceof AggregateError);
  assert.deepEqual(
    error.errors.map(({ message }) => message),
    ['a refused', 'b refused', 'c refused'],
  );
});

test('one that is given up leaves no socket and starts no attempt', (context) => {
  const { attempts, outcomes, giveUp } = started(context, ['a', 'b', 'c']);
  context.mock.timers.tick(250);
  giveUp();
  // It failed just before, and says so only now.
  attempts.of('a').emit('error', new Error('refused'));
  context.mock.timers.tick(10_000);
  assert.deepEqual(
    attempts.opened.map(({ socket }) => socket.destroyed),
    [true, true],
  );
  assert.deepEqual(outcomes, []);
});

test('a connection to a name is one to any of its addresses, and says why there is none', async (context) => {
  const server = net.createServer((socket) => socket.end()).listen(0, '127.0.0.1');
  context.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = await connectTo({ host: 'localhost', port }, { timeout: 10_000 });
  assert.equal(socket.remoteAddress, '127.0.0.1');
  socket.destroy();
  await assert.rejects(connectTo({ host: 'localhost', port: 1 }, { timeout: 10_000 }), { code: 'ECONNREFUSED' });
  await assert.rejects(connectTo({ host: 'nowhere.invalid', port }, { timeout: 20_000 }), { syscall: 'getaddrinfo' });
  const abandoned = new AbortController();
  abandoned.abort();
  const { signal } = abandoned;
  await assert.rejects(connectTo({ host: '127.0.0.1', port }, { timeout: 10_000, signal }), /abandoned/);
  await until(() => socket.closed, { what: 'the socket to close' });
});

test('an answer that ends before it is whole says so, and one that is given up says why', async (context) => {
  const server = http.createServer(({ url }, response) => {
    response.setHeader('content-length', 10);
    response.write('part');
    if (url === '/cut') setImmediate(() => response.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close().closeAllConnections());
  const end = new AbortController();
  const [cut, hangs] = ['/cut', '/'].map(async (path) => {
    const { port } = server.address() as AddressInfo;
    return answerTo(http.get({ port, host: '127.0.0.1', path, agent: false }), end.signal);
  });
  await assert.rejects(wholeOf((await cut) as http.IncomingMessage, 100), /^Error: the answer ended too early$/);
  const whole = wholeOf((await hangs) as http.IncomingMessage, 100);
  end.abort(new Error('no answer within 5 s'));
  await assert.rejects(whole, /^Error: no answer within 5 s$/);
});

test('the end of a stream and of an answer is told once, also to who asks when it is over', async (context) => {
  const answers: http.ServerResponse[] = [];
  const server = http.createServer((_request, response) => void answers.push(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close().closeAllConnections());
  const { port } = server.address() as AddressInfo;
  const client = net.connect(port, '127.0.0.1').on('error', () => {});
  client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  await until(() => answers.length === 1, { what: 'the request' });
  const [answer] = answers as [http.ServerResponse];
  const told: string[] = [];
  const ask = (when: string) => {
    for (const [name, stream] of Object.entries({ answer, client, through }))
      onceClosed(stream, () => told.push(`${name} ${when}`));
  };
  const through = new PassThrough();
  ask('before');
  assert.deepEqual(told, []);
  for (const stream of [client, through]) stream.destroy();
  await until(() => told.length === 3, { what: 'all ends' });
  ask('after');
  assert.deepEqual(told.slice(3).sort(), ['answer after', 'client after', 'through after']);
  await tick();
  assert.equal(told.length, 6);
});

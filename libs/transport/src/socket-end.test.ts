import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, Socket } from 'node:net';
import { test } from 'node:test';
import type { EndUser } from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { SocketEnd } from './socket-end.ts';

const tick = () => new Promise((resolve) => setImmediate(resolve));

/** An end at a socket that leads nowhere, and users of it who note what they are told. */
function nowhere() {
  const socket = new Socket({ allowHalfOpen: true });
  const told: string[] = [];
  const user = (name: string): EndUser => ({
    onData: (bytes) => void told.push(`${name} ${Buffer.from(bytes)}`),
    onDrain: () => void told.push(`${name} drain`),
    onEnd: () => void told.push(`${name} end`),
    onClose: (failure) => void told.push(`${name} close ${failure?.message ?? 'in order'}`),
  });
  const end = new SocketEnd(socket, () => void told.push('left'));
  return { socket, end, told, user, read: (text: string) => socket.push(Buffer.from(text)) };
}

test('each user gets what comes in its time, and the next one what was kept', async () => {
  const { socket, end, told, user, read } = nowhere();
  end.hear(user('first'));
  await tick();
  read('head');
  end.keep(Buffer.from('rest,'));
  read('early');
  end.use(user('tunnel'), 'acme');
  assert.deepEqual(told.splice(0), ['first head']);
  await tick();
  read('late');
  assert.deepEqual(told.splice(0), ['tunnel rest,early', 'tunnel late']);
  socket.destroy(new Error('reset'));
  await tick();
  assert.deepEqual(told, ['tunnel close reset', 'left']);
});

test('an end before the tunnel is told behind the bytes before it, and its watch hears of it at once', async () => {
  const { socket, end, told, user, read } = nowhere();
  end.watch = { ended: () => void told.push('ended'), closed: () => void told.push('closed') };
  end.keep(Buffer.alloc(0));
  await tick();
  read('early');
  socket.push(null);
  await tick();
  assert.deepEqual(told.splice(0), ['ended']);
  end.use(user('tunnel'), 'acme');
  await tick();
  assert.deepEqual(told, ['tunnel early', 'tunnel end']);
});

test('one that keeps much is not read on until somebody takes it', async () => {
  const { socket, end, read } = nowhere();
  end.keep(Buffer.alloc(0));
  await tick();
  read('x'.repeat(TRANSPORT.earlyBytes));
  assert.equal(socket.isPaused(), true);
  assert.equal(end.take().length, TRANSPORT.earlyBytes);
  assert.equal(socket.isPaused(), false);
});

test('a user of a socket that has closed is told so', async () => {
  const { socket, end, told, user } = nowhere();
  socket.destroy();
  await tick();
  end.use(user('tunnel'), 'acme');
  await tick();
  assert.deepEqual(told, ['tunnel close in order', 'left']);
});

test('what a slow reader has yet to take is on its way from then on, however long ago it was written', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [[peer]] = (await Promise.all([once(server, 'connection'), once(socket, 'connect')])) as [[Socket], unknown];
  t.after(() => [socket, peer].map((each) => each.destroy()));
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const end = new SocketEnd(socket);
  let arrived = false;
  while (end.writableLength === 0) socket.write(Buffer.alloc(1024 * 1024));
  end.whenDelivered(() => (arrived = true), 60_000);
  const taken = new Promise((resolve) => socket.write('', resolve));
  peer.resume();
  await taken;
  t.mock.timers.tick(TRANSPORT.deliveryMs - 1);
  assert.equal(arrived, false);
  t.mock.timers.tick(1);
  assert.equal(arrived, true);
});

test('records of a byte on 40 sockets of one tenant leave ticks of the event loop to others', async () => {
  const [sockets, records, ticks] = [40, 2800, 60];
  let [pieces, bytes] = [0, 0];
  const ends = Array.from({ length: sockets }, () => {
    const { socket, end, user } = nowhere();
    const onData = ({ length }: Uint8Array) => {
      pieces++;
      bytes += length;
    };
    end.use({ ...user('tunnel'), onData }, 'loud');
    return socket.setMaxListeners(0);
  });
  await tick();
  const before = ends.map((socket) => socket.readableHighWaterMark);
  const inTick: number[] = [];
  let sent = 0;
  for (let n = 0; n < ticks; n++) {
    pieces = 0;
    // TLS gives all records that it has read at once, and reads no more of a socket that has paused.
    for (const socket of ends.filter((socket) => !socket.isPaused()))
      for (let record = 0; record < records; record++) {
        socket.push(Buffer.of(1));
        sent++;
      }
    await tick();
    inTick.push(pieces);
  }
  const [first = 0, ...later] = inTick;
  assert.ok(first <= 130 * sockets, `${first} pieces in the first tick`);
  assert.ok(Math.max(...later) <= 1100, `${inTick.join(' ')} pieces`);
  for (let n = 0; n < sockets; n++) await tick();
  assert.equal(bytes, sent, 'nothing is lost');
  const after = ends.map((socket) => socket.readableHighWaterMark);
  assert.deepEqual(after, before, 'no socket reads on more while it is paused than before');
});

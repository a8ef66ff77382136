import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import http2 from 'node:http2';
import net, { type AddressInfo, type Socket } from 'node:net';
import { afterEach, mock, test } from 'node:test';
import { LOOK_EVERY, watchLiveness } from './liveness.ts';

afterEach(() => mock.timers.reset());

/** A link's two halves as the watch sees them. */
function watched() {
  const session = Object.assign(new EventEmitter(), { destroyed: false, pings: 0, ping: () => void session.pings++ });
  const socket = { bytesRead: 0 };
  const deaths: Error[] = [];
  mock.timers.enable({ apis: ['setInterval'] });
  watchLiveness(session as never, socket as never, (error) => deaths.push(error));
  return { session, socket, deaths, look: (count: number) => mock.timers.tick(count * LOOK_EVERY) };
}

test('a link from which bytes come is never asked', () => {
  const { session, socket, deaths, look } = watched();
  for (let i = 0; i < 100; i++) {
    socket.bytesRead++;
    look(2);
  }
  assert.equal(session.pings, 0);
  assert.deepEqual(deaths, []);
});

test('a link at rest is asked once a second, and lives by its answers', () => {
  const { session, socket, deaths, look } = watched();
  for (let second = 1; second <= 60; second++) {
    look(3);
    assert.equal(session.pings, second);
    socket.bytesRead += 17;
    look(1);
  }
  assert.deepEqual(deaths, []);
});

test('a link that does not answer is dead once, within three seconds', () => {
  const { session, socket, deaths, look } = watched();
  socket.bytesRead++;
  look(1);
  look(3000 / LOOK_EVERY - 2);
  assert.deepEqual(
    deaths.map(({ message }) => message),
    ['silent for 2.5 s, and to PING'],
  );
  assert.equal(session.pings, 1);
  look(20);
  assert.equal(deaths.length, 1);
});

test('a closed session is watched no longer', () => {
  const { session, deaths, look } = watched();
  session.emit('close');
  look(100);
  assert.equal(session.pings, 0);
  assert.deepEqual(deaths, []);
});

test('over a real connection both ends live at rest, and both end when nothing comes through any more', async (t) => {
  const server = net.createServer().listen(0, '127.0.0.1');
  // What comes to the relay is dropped from some point on, and neither side hears of it.
  let dropping = false;
  const relay = net
    .createServer((inner) => {
      const outer = net.connect((server.address() as AddressInfo).port, '127.0.0.1');
      t.after(() => [inner, outer].forEach((socket) => void socket.destroy()));
      inner.on('data', (chunk) => dropping || outer.write(chunk)).on('error', () => {});
      outer.on('data', (chunk) => dropping || inner.write(chunk)).on('error', () => {});
    })
    .listen(0, '127.0.0.1');
  t.after(() => [server, relay].forEach((listener) => void listener.close()));
  await once(relay, 'listening');
  const socket = net.connect((relay.address() as AddressInfo).port, '127.0.0.1');
  const [accepted] = (await once(server, 'connection')) as [Socket];
  const ends = [
    { session: http2.performServerHandshake(accepted), socket: accepted },
    { session: http2.connect('http://link', { createConnection: () => socket }), socket },
  ];
  let pings = 0;
  const deaths: Promise<unknown>[] = [];
  for (const end of ends) {
    t.after(() => end.session.destroy());
    end.session.on('ping', () => pings++);
    const dead = new Promise<unknown>((resolve) => watchLiveness(end.session, end.socket, resolve));
    deaths.push(dead);
    dead.then(() => assert.ok(dropping, 'dead though it was answered'));
  }
  while (pings < 3)
    await Promise.race([once(ends[0]?.session as never, 'ping'), once(ends[1]?.session as never, 'ping')]);
  dropping = true;
  await Promise.all(deaths);
});

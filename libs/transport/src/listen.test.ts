import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import test from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { listen } from './listen.ts';

test('a listener that stopped refuses callers, serves those that came before, and is idle when they have gone', async () => {
  const address = { host: '127.0.0.1', port: 0 };
  const answer = (socket: net.Socket) => void socket.once('data', () => socket.end('late, but answered'));
  const listener = await listen({ address, http1: answer, events: planeEvents(), name: 'callers' });
  const port = Number(listener.address.split(':').at(-1));
  const before = net.connect(port, '127.0.0.1').setEncoding('utf8');
  await once(before, 'connect');
  await listener.stop();
  let idle = false;
  void listener.idle.then(() => {
    idle = true;
  });
  const [refusal] = (await once(net.connect(port, '127.0.0.1'), 'error')) as [NodeJS.ErrnoException];
  assert.equal(refusal.code, 'ECONNREFUSED');
  assert.equal(idle, false);
  before.write('hello');
  assert.deepEqual(await once(before, 'data'), ['late, but answered']);
  before.end();
  await listener.idle;
  await listener.close();
});

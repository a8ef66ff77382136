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

test('a listener that stops takes what the kernel has accepted, and resets none', async () => {
  const address = { host: '127.0.0.1', port: 0 };
  const answer = (socket: net.Socket) => void socket.once('data', () => socket.end('answered'));
  const listener = await listen({ address, http1: answer, events: planeEvents(), name: 'callers' });
  const port = Number(listener.address.split(':').at(-1));
  const callers = Array.from({ length: 50 }, () => net.connect(port, '127.0.0.1').setEncoding('utf8'));
  await Promise.all(callers.map((caller) => once(caller, 'connect')));
  const answers = Promise.all(
    callers.map(async (caller) => {
      caller.write('hello');
      const [text] = await once(caller, 'data');
      caller.end();
      return text as string;
    }),
  );
  await listener.stop();
  assert.deepEqual(new Set(await answers), new Set(['answered']));
  await listener.idle;
  await listener.close();
});

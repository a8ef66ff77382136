import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { planeEvents } from '@isthmus/tunnel';
import { connectEdge } from './connect.ts';

test('a refused caller that goes on sending is let go', { timeout: 10_000 }, async (context) => {
  const dial = () => Promise.reject(new Error('refused'));
  const edge = connectEdge({ dial, tenant: 'default', events: planeEvents(), timeout: 1000 });
  const server = net.createServer({ allowHalfOpen: true }, (socket) => edge.accept(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const caller = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
  caller.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n');
  const [answer] = await once(caller.setEncoding('latin1'), 'data');
  assert.match(answer, /^HTTP\/1\.1 502 /);
  const trickle = setInterval(() => caller.write('x'), 100);
  context.after(() => clearInterval(trickle));
  await new Promise((resolve) => caller.once('close', resolve));
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { DialError, planeEvents } from '@isthmus/tunnel';
import { connectEdge } from './connect.ts';

/** A caller that dials through an edge where every dial fails for this reason. */
async function refusedCaller(context: TestContext, reason: Error): Promise<net.Socket> {
  const dial = () => Promise.reject(reason);
  const edge = connectEdge({ dial, tenant: 'default', events: planeEvents(), timeout: 60_000 });
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {}).once('data', (first) => edge.accept(socket, first));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const caller = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
  caller.write('CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n');
  return caller;
}

const retryAfter: [reason: DialError, seconds: number][] = [
  [new DialError('destination_unavailable', 'No agent available'), 1],
  [new DialError('connection_limit_reached', 'tenant t has 2000 dials without an answer already'), 1],
  [new DialError('connection_limit_reached', 'socket: too many open files', { retryable: true }), 1],
  [new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true, retryAfter: 0 }), 0],
];
for (const [reason, seconds] of retryAfter) {
  test(`after "${reason.message}" a caller is told to dial again in ${seconds} s`, async (context) => {
    const caller = await refusedCaller(context, reason);
    const answer = await text(caller);
    caller.end();
    assert.match(answer, /^HTTP\/1\.1 503 /);
    assert.match(answer, new RegExp(`\r\nretry-after: ${seconds}\r\n`));
  });
}

test('a refused caller that goes on sending is let go', { timeout: 60_000 }, async (context) => {
  const caller = await refusedCaller(context, new Error('refused'));
  const [answer] = await once(caller.setEncoding('latin1'), 'data');
  assert.match(answer, /^HTTP\/1\.1 502 /);
  const trickle = setInterval(() => caller.write('x'), 100);
  context.after(() => clearInterval(trickle));
  await new Promise((resolve) => caller.once('close', resolve));
});

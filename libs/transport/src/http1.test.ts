import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import test from 'node:test';
import { ask, Pieces } from './http1.ts';

test('what came in pieces is the same whole', () => {
  const pieces = new Pieces();
  const first = Buffer.from('first ');
  assert.equal(pieces.add(first).buffer, first.buffer, 'one alone is not copied');
  assert.equal(pieces.add(Buffer.from('second ')).toString(), 'first second ');
  assert.equal(pieces.add(Buffer.alloc(0)).toString(), 'first second ');
  for (const letter of 'third') pieces.add(Buffer.from(letter));
  assert.equal(pieces.length, 18);
  assert.equal(pieces.take().toString(), 'first second third');
  assert.deepEqual([pieces.length, pieces.take().length], [0, 0]);
  assert.equal(pieces.add(Buffer.from('again')).toString(), 'again');
  assert.equal(first.toString(), 'first ', 'what came is left as it was');
});

test('each byte is copied twice at most, however small the pieces', (t) => {
  const pieces = new Pieces();
  let copied = 0;
  const { set } = Uint8Array.prototype;
  t.mock.method(Uint8Array.prototype, 'set', function count(this: Uint8Array, bytes: ArrayLike<number>, at?: number) {
    copied += bytes.length;
    set.call(this, bytes, at);
  });
  for (let i = 0; i < 100_000; i++) pieces.add(Buffer.from('x'));
  assert.ok(copied > 0 && copied <= 3 * pieces.length, `${copied} bytes were copied`);
});

for (const [name, answer] of [
  ['both', 'HTTP/1.1 200 OK\r\nA: b\r\n\r\n'],
  ['line feeds', 'HTTP/1.1 200 OK\nA: b\n\n'],
  ['both, of a later minor version', 'HTTP/1.2 200 OK\r\nA: b\r\n\r\n'],
  ['both, and the empty one a line feed', 'HTTP/1.1 200 OK\r\nA: b\r\n\n'],
  ['line feeds, and the empty one both', 'HTTP/1.1 200 OK\nA: b\n\r\n'],
])
  test(`an answer’s lines end as for Go’s clients, and what is behind it stays: ${name}`, async (context) => {
    const server = net.createServer((socket) => void socket.end(`${answer}more\r\n\r\n`)).listen(0, '127.0.0.1');
    context.after(() => server.close());
    await once(server, 'listening');
    const socket = net.connect((server.address() as AddressInfo).port, '127.0.0.1');
    context.after(() => socket.destroy());
    const { status, reason, fields } = await ask(socket, 'CONNECT a:1 HTTP/1.1\r\n\r\n', 2000);
    assert.deepEqual([status, reason, ...fields], [200, 'OK', ['a', 'b']]);
    assert.deepEqual(String(await once(socket, 'data')), 'more\r\n\r\n');
  });

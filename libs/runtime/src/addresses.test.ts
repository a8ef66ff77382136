import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { addressOf, readProxyHeader, remoteOf } from './addresses.ts';
import { binaryHeader } from './testing.ts';

const REST = Buffer.from('GET / HTTP/1.1\r\n\r\n');

const GOOD: readonly (readonly [name: string, header: Buffer, address: string | undefined, port?: number])[] = [
  ['TCP4', Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n'), '192.0.2.1', 56324],
  ['TCP6', Buffer.from('PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n'), '2001:db8::1', 1],
  ['UNKNOWN', Buffer.from('PROXY UNKNOWN\r\n'), undefined],
  ['UNKNOWN with addresses', Buffer.from(`PROXY UNKNOWN ${'f'.repeat(91)}\r\n`), undefined],
  ['v2 IPv4', binaryHeader({ source: ['c0000201', 56324] }), '192.0.2.1', 56324],
  ['v2 IPv4 with fields', binaryHeader({ source: ['c0000201', 1], fields: Buffer.alloc(2000, 1) }), '192.0.2.1', 1],
  ['v2 IPv6', binaryHeader({ source: [`20010db8${'0'.repeat(23)}1`, 7] }), '2001:db8::1', 7],
  ['v2 IPv4 in IPv6', binaryHeader({ source: ['00000000000000000000ffffc0000201', 7] }), '192.0.2.1', 7],
  ['v2 LOCAL', binaryHeader({ command: 0 }), undefined],
  ['v2 LOCAL with addresses', binaryHeader({ command: 0, source: ['c0000201', 1] }), undefined],
  ['v2 of an unspecified family', binaryHeader({ transport: 0, fields: Buffer.from('anything') }), undefined],
  ['v2 of a unix socket', binaryHeader({ transport: 0x31, fields: Buffer.alloc(216) }), undefined],
];

for (const [name, header, address, port] of GOOD) {
  test(`${name} is read, wherever the bytes are cut`, () => {
    for (let length = 0; length < header.length; length++) {
      assert.equal(readProxyHeader(header.subarray(0, length)), undefined, `${length} bytes`);
    }
    const expected = { source: address === undefined ? undefined : { address, port }, length: header.length };
    assert.deepEqual(readProxyHeader(header), expected);
    assert.deepEqual(readProxyHeader(Buffer.concat([header, REST])), expected);
  });
}

const BAD: readonly (readonly [name: string, bytes: Buffer])[] = [
  ['TLS', Buffer.from('16030100', 'hex')],
  ['HTTP', REST],
  ['HTTP/2', Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')],
  ['a word that begins like the header', Buffer.from('PUT')],
  ['another protocol', Buffer.from('PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n')],
  ['a family without addresses', Buffer.from('PROXY TCP4\r\n')],
  ['an address of the other family', Buffer.from('PROXY TCP4 2001:db8::1 192.0.2.2 1 2\r\n')],
  ['a destination of the other family', Buffer.from('PROXY TCP4 192.0.2.1 ::1 1 2\r\n')],
  ['a name', Buffer.from('PROXY TCP4 localhost 192.0.2.2 1 2\r\n')],
  ['an IPv4 address with a leading zero', Buffer.from('PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n')],
  ['a port with a leading zero', Buffer.from('PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n')],
  ['a port of 65536', Buffer.from('PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n')],
  ['two spaces', Buffer.from('PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n')],
  ['a line without a carriage return', Buffer.from(`PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n${' '.repeat(80)}`)],
  ['a line of 108 bytes', Buffer.from(`PROXY UNKNOWN ${'f'.repeat(92)}\r\n`)],
  ['a control character', Buffer.from('PROXY UNKNOWN \x1b[31m\r\n')],
  ['version 1 in the binary header', binaryHeader({ version: 1, source: ['c0000201', 1] })],
  ['command 2', binaryHeader({ command: 2, source: ['c0000201', 1] })],
  ['datagrams', binaryHeader({ transport: 0x12, source: ['c0000201', 1] })],
  ['family 4', binaryHeader({ transport: 0x41, source: ['c0000201', 1] })],
  ['a header too short for its addresses', binaryHeader({ transport: 0x21, source: ['c0000201', 1] })],
  ['a header of 64 KiB', binaryHeader({ source: ['c0000201', 1], fields: Buffer.alloc(65_000) }).subarray(0, 16)],
];

for (const [name, bytes] of BAD) {
  test(`${name} is refused`, () => assert.throws(() => readProxyHeader(bytes), /header of the PROXY protocol/));
}

test('an IPv4 peer of a dual-stack listener has an IPv4 address', async (t) => {
  const server = createServer().listen(0, '::');
  t.after(() => server.close());
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  t.after(() => client.destroy());
  const [socket] = (await once(server, 'connection')) as [Socket];
  t.after(() => socket.destroy());
  assert.equal(socket.remoteAddress, '::ffff:127.0.0.1');
  assert.deepEqual([addressOf(socket), remoteOf(socket)], ['127.0.0.1', `127.0.0.1:${client.localPort}`]);
});

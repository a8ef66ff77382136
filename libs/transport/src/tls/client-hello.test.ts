import assert from 'node:assert/strict';
import net from 'node:net';
import { describe, test } from 'node:test';
import tls from 'node:tls';
import { TRANSPORT } from '../defaults.ts';
import { type ClientHello, ClientHelloReader, UNREADABLE } from './client-hello.ts';
import { extension, helloOf, named, recordsOf, serverNames } from './testing/hellos.ts';

type Verdict = ReturnType<ClientHelloReader['read']>;

/** Reads a connection's bytes in pieces of one size, and returns the verdict and how many bytes it took. */
function readIn(bytes: Buffer, size: number): { readonly verdict: Verdict; readonly taken: number } {
  const reader = new ClientHelloReader();
  for (let at = 0; at < bytes.length; at += size) {
    const verdict = reader.read(bytes.subarray(at, at + size));
    if (verdict !== undefined) {
      assert.deepEqual(reader.bytes, bytes.subarray(0, at + size), 'all bytes are there to pass on');
      return { verdict, taken: reader.bytes.length };
    }
  }
  return { verdict: undefined, taken: bytes.length };
}

function nameOf(bytes: Buffer, size = bytes.length): string | undefined {
  const { verdict } = readIn(bytes, size);
  return (verdict as ClientHello | undefined)?.serverName;
}

/** The first flight of this runtime's own client. */
async function ownHello(servername: string): Promise<Buffer> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.on('listening', resolve));
  const { port } = server.address() as net.AddressInfo;
  const client = tls.connect({ host: '127.0.0.1', port, servername, rejectUnauthorized: false }).on('error', () => {});
  const hello = await new Promise<Buffer>((resolve) =>
    server.on('connection', (socket) => void socket.on('error', () => {}).once('data', resolve)),
  );
  client.destroy();
  server.close();
  return hello;
}

describe('A ClientHello is read', () => {
  test('as this runtime sends it, whole and byte by byte', async () => {
    const hello = await ownHello('api.acme.plane.example');
    assert.equal(nameOf(hello), 'api.acme.plane.example');
    for (const size of [1, 2, 5, 7, 100, 1000]) assert.equal(nameOf(hello, size), 'api.acme.plane.example');
  });

  test('over many records and segments', () => {
    const message = named('api.acme.plane.example');
    for (const record of [1, 3, 4, 5, 64, 400])
      for (const segment of [1, 6, 1000])
        assert.equal(nameOf(recordsOf(message, record), segment), 'api.acme.plane.example', `${record}, ${segment}`);
  });

  test('with GREASE, a key share of 1.7 KB and an encrypted hello, whose outer name counts', () => {
    const grease = extension(0x0a0a, Buffer.alloc(1));
    const share = extension(51, Buffer.alloc(1700, 7));
    const encrypted = extension(0xfe0d, Buffer.alloc(300, 9));
    const hello = helloOf([grease, share, encrypted, extension(0, serverNames('public.example')), grease]);
    assert.equal(nameOf(recordsOf(hello)), 'public.example');
  });

  test('in upper case and with a dot at its end, as it was sent', () => {
    assert.equal(nameOf(recordsOf(named('API.Acme.Plane.Example.'))), 'API.Acme.Plane.Example.');
  });

  test('with its random, which is another in each', () => {
    const { verdict } = readIn(recordsOf(helloOf([], Buffer.alloc(32, 0xab))), 10_000);
    assert.deepEqual(verdict, { serverName: undefined, random: 'ab'.repeat(32) });
  });

  test('no further than it goes, whatever follows', () => {
    const bytes = Buffer.concat([recordsOf(named('a.example')), Buffer.alloc(50_000, 1)]);
    assert.equal(readIn(bytes, 100).taken < 400, true);
  });
});

describe('There is no name', () => {
  const none: readonly (readonly [what: string, hello: Buffer])[] = [
    ['without the extension', helloOf([])],
    ['with two in one extension', helloOf([extension(0, serverNames('a.example', 'b.example'))])],
    ['with two extensions', helloOf([extension(0, serverNames('a.example')), extension(0, serverNames('a.example'))])],
    ['with a NUL', named('a.example\0.b.example')],
    ['that is empty', named('')],
    ['of another type', helloOf([extension(0, Buffer.from([0, 4, 1, 0, 1, 0x61]))])],
    ['that is longer than its list', helloOf([extension(0, Buffer.from([0, 4, 0, 0, 9, 0x61]))])],
    ['with bytes behind the list', helloOf([extension(0, Buffer.concat([serverNames('a.example'), Buffer.alloc(1)]))])],
    ['not of ASCII', named('é.example')],
  ];
  for (const [what, hello] of none)
    test(what, () => {
      const { verdict } = readIn(recordsOf(hello), 10_000);
      assert.equal(verdict === UNREADABLE || verdict?.serverName === undefined, true, JSON.stringify(verdict));
      assert.notEqual(verdict, undefined);
    });
});

describe('It is decided at once, and nothing more is read,', () => {
  const cases: readonly (readonly [what: string, bytes: Buffer, most: number])[] = [
    ['of an HTTP request', Buffer.from('CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n'), 1],
    ["of HTTP/2's preface", Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), 1],
    ['of SSL 2', Buffer.from([0x80, 0x2e, 1, 3, 1]), 1],
    ['of a record of another version', Buffer.from([22, 2, 0, 0, 1, 1]), 2],
    ['of an empty record', Buffer.from([22, 3, 1, 0, 0, 22]), 5],
    ['of another message', recordsOf(Buffer.from([2, 0, 0, 1, 0])), 6],
    ['of 64 KiB of extensions', recordsOf(helloOf([extension(21, Buffer.alloc(65_000))])), 9],
    ['of a message that says it is longer', recordsOf(Buffer.from([1, 0, 0x80, 0, 0])), 9],
  ];
  for (const [what, bytes, most] of cases)
    test(what, () => {
      const { verdict, taken } = readIn(bytes, 1);
      assert.deepEqual([verdict, taken], [UNREADABLE, most]);
    });

  test('of many records that carry little', () => {
    const { verdict, taken } = readIn(recordsOf(helloOf([extension(21, Buffer.alloc(12_000))]), 1), 1);
    assert.deepEqual([verdict, taken], [UNREADABLE, TRANSPORT.helloBytes]);
  });

  test('of any first bytes, without an error', () => {
    let seed = 1;
    const next = () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed;
    };
    const whole = recordsOf(named('api.acme.plane.example'), 60);
    for (let round = 0; round < 5000; round++) {
      const bytes = Buffer.from(whole);
      for (let flips = next() % 4; flips >= 0; flips--) bytes[next() % bytes.length] = next() % 256;
      readIn(bytes.subarray(0, 1 + (next() % bytes.length)), 1 + (next() % 50));
    }
  });
});

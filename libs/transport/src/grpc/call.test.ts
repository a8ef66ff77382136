import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { test } from 'node:test';
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { changed } from '@isthmus/runtime/testing';
import { PlaneEnded } from '@isthmus/tunnel';
import { type ServerCall, StatusError, WIRE } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { connect, data, message, open, PATH, type Reply, serve } from './testing/calls.ts';

const REFUSALS: readonly [what: string, over: Record<string, string>, http: number, grpc: number, text: RegExp][] = [
  ['another content type', { 'content-type': 'text/html' }, 415, 3, /invalid gRPC request content-type "text\/html"/],
  ['a content type that only begins alike', { 'content-type': 'application/grpc-web' }, 415, 3, /content-type/],
  ['GET', { ':method': 'GET' }, 405, 13, /:method "GET" which should be POST/],
  ['an unknown method', { ':path': '/Test/Nothing' }, 200, 12, /unknown method \/Test\/Nothing/],
  ['a path that is none', { ':path': 'x' }, 200, 12, /unknown method/],
  ['a timeout that is none', { 'grpc-timeout': '5' }, 400, 13, /malformed grpc-timeout/],
  ['compression', { 'grpc-encoding': 'gzip' }, 200, 12, /not installed for grpc-encoding "gzip"/],
];

for (const [what, over, http, grpc, text] of REFUSALS) {
  test(`a call with ${what} is answered by trailers alone`, async () => {
    const { port } = await serve();
    const { head, packets } = open(connect(port), over);
    const fields = await head;
    assert.equal(fields[':status'], http);
    assert.equal(fields['grpc-status'], String(grpc));
    assert.match(decodeURIComponent(String(fields['grpc-message'])), text);
    assert.deepEqual(packets, []);
  });
}

test('CONNECT is refused with the code that asks for HTTP/1.1', async () => {
  const { port, events } = await serve();
  const refused: string[] = [];
  events.on('refused', (_where, _remote, { message }) => refused.push(message));
  const stream = connect(port).request({ ':method': 'CONNECT', ':authority': 'a:1' }, { endStream: false });
  await assert.rejects(once(stream, 'response'));
  assert.equal(stream.rstCode, http2.constants.NGHTTP2_HTTP_1_1_REQUIRED);
  assert.deepEqual(refused, ['CONNECT is not served over HTTP/2: use HTTP/1.1']);
});

for (const type of ['application/grpc', 'application/grpc+proto', 'application/grpc;charset=utf-8']) {
  test(`${type} is gRPC`, async () => {
    const { port } = await serve();
    const { stream, head } = open(connect(port), { 'content-type': type });
    stream.end();
    assert.equal((await head)['grpc-status'], '0');
  });
}

test('a message is the same wherever DATA frames split it', async () => {
  using _ = changed(WIRE, { pongMs: 1 });
  const { port } = await serve();
  const packet = data(7n, Buffer.from('split'));
  const bytes = message(packet);
  const session = connect(port);
  for (let first = 1; first < bytes.length; first++) {
    const { stream, packets, status } = open(session);
    stream.write(bytes.subarray(0, first));
    await new Promise((resolve) => session.ping(resolve));
    stream.end(Buffer.concat([bytes.subarray(first), bytes, bytes]));
    assert.equal((await status)['grpc-status'], '0');
    assert.deepEqual(packets, [packet, packet, packet], `split at ${first}`);
  }
});

const BAD_MESSAGES: readonly [what: string, bytes: Buffer, grpc: number, text: RegExp][] = [
  ['a compressed message', message({ type: 'DRAIN' }, 1), 13, /compressed flag/],
  ['a message of 4 GiB', Buffer.of(0, 255, 255, 255, 255, 1), 8, /larger than max/],
  ['a message that is no packet', Buffer.of(0, 0, 0, 0, 3, 0x22, 0xff, 0xff), 3, /bad packet/],
];

for (const [what, bytes, grpc, text] of BAD_MESSAGES) {
  test(`${what} ends its call, before and behind an answer`, async () => {
    const { port } = await serve();
    const session = connect(port);
    for (const good of [[], [message({ type: 'DRAIN' })]]) {
      const { stream, status, packets } = open(session);
      stream.write(Buffer.concat([...good, bytes]));
      const fields = await status;
      assert.equal(fields['grpc-status'], String(grpc));
      assert.match(decodeURIComponent(String(fields['grpc-message'])), text);
      assert.equal(packets.length, good.length);
    }
  });
}

test('a call that ends amid a message is told so', async () => {
  const { port } = await serve();
  const { stream, status } = open(connect(port));
  stream.end(message({ type: 'DRAIN' }).subarray(0, 6));
  assert.equal((await status)['grpc-status'], '13');
});

test('a status keeps every character of its text', async () => {
  const text = '100 % “wahr”\nä';
  const { port } = await serve((call) => call.fail(new StatusError('Unavailable', text)));
  const { head } = open(connect(port));
  const fields = await head;
  assert.equal(fields['grpc-status'], '14');
  assert.equal(decodeURIComponent(String(fields['grpc-message'])), text);
});

test('a call may take as long as its caller allows', async () => {
  const { port } = await serve();
  const { status } = open(connect(port), { 'grpc-timeout': '50m' });
  assert.equal((await status)['grpc-status'], '4');
});

test('metadata comes as it was sent, values of one name apart, binary ones in base64', async () => {
  const came = Promise.withResolvers<ServerCall>();
  const { port } = await serve((call) => {
    came.resolve(call);
    call.respond([['answer', 'yes']]);
    call.end();
  });
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  cleanups.push(() => client.close());
  const metadata = new Metadata();
  metadata.add('name', 'one');
  metadata.add('name', 'two');
  metadata.add('trace-bin', Buffer.of(0, 255));
  const same = (bytes: Buffer) => bytes;
  const call = client.makeBidiStreamRequest(PATH, same, same, metadata);
  call.on('data', () => {}).on('error', () => {});
  const [answer] = (await once(call, 'metadata')) as [Metadata];
  assert.deepEqual(answer.get('answer'), ['yes']);
  const sent = (await came.promise).metadata;
  assert.deepEqual(sent.get('name'), ['one', 'two']);
  assert.deepEqual(sent.get('trace-bin'), ['AP8=']);
  assert.deepEqual(sent.get('none'), []);
});

test('a call that fails while its caller does not read is reset, and its sink hears of it once', async () => {
  const closed: unknown[] = [];
  const { port } = await serve((call) => {
    call.start({ packet() {}, drain() {}, closed: (error) => void closed.push(error) });
    call.send(data(1n, Buffer.alloc(1024 * 1024)));
    call.destroy(new Error('enough'));
  });
  const { stream } = open(connect(port));
  const aborted = once(stream, 'aborted');
  stream.pause();
  await once(stream, 'readable');
  stream.pause();
  await aborted;
  assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
  assert.equal(closed.length, 1);
});

const FAILURES: readonly [what: string, fail: (call: ServerCall, reply: Reply) => void, code: string, text: RegExp][] =
  [
    ['its server ends it', (call) => call.destroy(new PlaneEnded('kicked')), 'Aborted', /^kicked$/],
    [
      'it sends what is no packet',
      (_, { stream }) => void stream.write(Buffer.of(0, 0, 0, 0, 3, 0x22, 0xff, 0xff)),
      'InvalidArgument',
      /bad packet/,
    ],
    [
      'it ends amid a message',
      (_, { stream }) => void stream.end(message({ type: 'DRAIN' }).subarray(0, 6)),
      'Internal',
      /in the middle of a message/,
    ],
  ];

for (const [what, fail, code, text] of FAILURES) {
  test(`a call that has nothing left to send and fails since ${what} tells its sink so`, async () => {
    const came = Promise.withResolvers<ServerCall>();
    const closed: (StatusError | undefined)[] = [];
    const { port } = await serve((call) => {
      call.respond([]);
      call.start({ packet() {}, drain() {}, closed: (error) => void closed.push(error) });
      came.resolve(call);
    });
    const reply = open(connect(port));
    await reply.head;
    fail(await came.promise, reply);
    await reply.status;
    assert.equal(closed.length, 1);
    assert.equal(closed[0]?.code, code);
    assert.match(closed[0]?.message ?? '', text);
    assert.equal(closed[0]?.cause instanceof PlaneEnded, code === 'Aborted');
  });
}

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { ErrorCode, FrameType } from './codes.ts';
import { dataHead, goawayFrame, headersFrames, PREFACE, settingsFrame, windowUpdateFrame } from './frames.ts';
import { encodeHead } from './head.ts';
import { Http2Session } from './session.ts';
import { raw, SETTINGS, socketPair } from './testing.ts';

const HEAD = encodeHead({ ':method': 'CONNECT', ':authority': 'h:1' });

function open(stream: number): Buffer {
  return Buffer.concat(headersFrames(stream, HEAD, false, 16_384));
}

/** What becomes of a server whose peer says this. @returns the code of its GOAWAY */
async function told(...frames: Buffer[]): Promise<number> {
  const [client, socket] = await socketPair();
  const server = new Http2Session({ role: 'server', socket, settings: SETTINGS });
  server.on('stream', (stream) => stream.on('error', () => {}));
  const received: Buffer[] = [];
  client.on('data', (chunk: Buffer) => received.push(chunk));
  client.write(Buffer.concat(frames));
  await Promise.all([once(server, 'close'), once(client, 'end')]);
  const all = Buffer.concat(received);
  let code = -1;
  for (let at = 0; at < all.length; at += 9 + all.readUIntBE(at, 3)) {
    if (all[at + 3] === FrameType.GOAWAY) code = all.readUInt32BE(at + 13);
  }
  return code;
}

const hello = [PREFACE, settingsFrame({})];

const attacks: [what: string, frames: Buffer[], code: number][] = [
  ['another protocol', [Buffer.from('GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n')], ErrorCode.PROTOCOL_ERROR],
  ['a frame longer than allowed', [...hello, raw(0, 0, 1, Buffer.alloc(0), 2 ** 24 - 1)], ErrorCode.FRAME_SIZE_ERROR],
  ['DATA on a stream that was never opened', [...hello, dataHead(7, 0, true)], ErrorCode.PROTOCOL_ERROR],
  ["a stream with a server's number", [...hello, open(2)], ErrorCode.PROTOCOL_ERROR],
  ['a head that is no HPACK', [...hello, raw(1, 4, 1, Buffer.from([0xff, 0xff]))], ErrorCode.COMPRESSION_ERROR],
  ['a head that never ends', endless(), ErrorCode.ENHANCE_YOUR_CALM],
  [
    'another frame amid a head',
    [...hello, raw(1, 0, 1, HEAD), raw(6, 0, 0, Buffer.alloc(8))],
    ErrorCode.PROTOCOL_ERROR,
  ],
  [
    'CONTINUATION without an end and without a byte',
    [...hello, raw(1, 0, 1, HEAD), ...Array(1000).fill(raw(9, 0, 1, Buffer.alloc(0)))],
    ErrorCode.ENHANCE_YOUR_CALM,
  ],
  ['CONTINUATION of nothing', [...hello, raw(9, 4, 1, HEAD)], ErrorCode.PROTOCOL_ERROR],
  ['a push', [...hello, raw(5, 4, 1, HEAD)], ErrorCode.PROTOCOL_ERROR],
  ['a window beyond 2^31 - 1', [...hello, windowUpdateFrame(0, 2 ** 31 - 1)], ErrorCode.FLOW_CONTROL_ERROR],
  [
    'a window of a stream beyond 2^31 - 1',
    [...hello, open(1), windowUpdateFrame(1, 2 ** 31 - 1)],
    ErrorCode.FLOW_CONTROL_ERROR,
  ],
  ['a window update of nothing', [...hello, windowUpdateFrame(0, 0)], ErrorCode.PROTOCOL_ERROR],
  ['a PING of seven bytes', [...hello, raw(6, 0, 0, Buffer.alloc(7))], ErrorCode.FRAME_SIZE_ERROR],
  ['SETTINGS of seven bytes', [PREFACE, raw(4, 0, 0, Buffer.alloc(7))], ErrorCode.FRAME_SIZE_ERROR],
  ['frames of a byte', [PREFACE, settingsFrame({ maxFrameSize: 1 })], ErrorCode.PROTOCOL_ERROR],
  ['nothing but padding', [...hello, open(1), raw(0, 8, 1, Buffer.from([5, 1]))], ErrorCode.PROTOCOL_ERROR],
  [
    'more than its window',
    [...hello, open(1), ...Array(3).fill(raw(0, 0, 1, Buffer.alloc(32 * 1024)))],
    ErrorCode.FLOW_CONTROL_ERROR,
  ],
  [
    'DATA after its end',
    [...hello, open(1), dataHead(1, 0, true), raw(0, 0, 1, Buffer.alloc(1))],
    ErrorCode.STREAM_CLOSED,
  ],
];

function endless(): Buffer[] {
  const field = encodeHead({ 'x-long': 'x'.repeat(8000) });
  return [...hello, raw(1, 0, 1, field), ...Array(3).fill(raw(9, 0, 1, field))];
}

for (const [what, frames, code] of attacks) {
  test(`a peer that sends ${what} is told so, and its connection ends`, async () => {
    assert.equal(await told(...frames), code);
  });
}

test('more streams than allowed are refused, and what is unknown is passed over', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Session({ role: 'server', socket, settings: { ...SETTINGS, maxConcurrentStreams: 2 } });
  let opened = 0;
  server.on('stream', (stream) => {
    opened++;
    stream.on('error', () => {});
  });
  const unknown = raw(0xaf, 0xff, 1, Buffer.from('who knows'));
  const priority = raw(2, 0, 1, Buffer.alloc(5));
  const padded = raw(0, 8, 1, Buffer.from([3, 120, 0, 0, 0]));
  client.write(Buffer.concat([...hello, open(1), unknown, priority, padded, open(3), open(5), goawayFrame(0)]));
  client.resume();
  await once(server, 'goaway');
  assert.deepEqual([opened, server.open], [2, 2]);
  client.destroy();
  await once(server, 'close');
});

test('a peer that asks for answers and does not read them is left', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Session({ role: 'server', socket, settings: SETTINGS });
  const closed = once(server, 'close');
  const pings = Buffer.concat(Array(10_000).fill(raw(6, 0, 0, Buffer.alloc(8))));
  client.pause();
  client.write(Buffer.concat(hello));
  const more = () => client.writable && client.write(pings, more);
  more();
  const [reason] = await closed;
  assert.equal((reason as Error).message, 'the other side does not read');
});

test('bytes that come one by one are read as well', async () => {
  const [client, socket] = await socketPair();
  const server = new Http2Session({ role: 'server', socket, settings: SETTINGS });
  const text: string[] = [];
  server.on('stream', (stream) => stream.on('data', (chunk) => text.push(String(chunk))).on('error', () => {}));
  client.resume();
  for (const byte of Buffer.concat([...hello, open(1), raw(0, 1, 1, Buffer.from('hello'))]))
    socket.emit('data', Buffer.from([byte]));
  while (text.join('') !== 'hello') await new Promise(setImmediate);
  server.destroy();
});

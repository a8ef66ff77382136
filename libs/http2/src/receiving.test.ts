import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ConnectionError, ErrorCode, FrameType } from './codes.ts';
import { goawayFrame, headersFrames, PREFACE, pingFrame, settingsAck, settingsFrame } from './frames.ts';
import { encodeHead } from './head.ts';
import { Pings } from './pings.ts';
import { Receiving } from './receiving.ts';
import { Streams } from './streams.ts';
import { raw, recorded, SETTINGS } from './testing.ts';

const REQUEST = { ':method': 'CONNECT', ':authority': 'h:1' };
const HELLO = settingsFrame({});
const OPAQUE = Buffer.from('12345678');

/** A receiving side, and what it makes of what it reads. */
function receivingOf(role: 'client' | 'server', left = () => {}) {
  const { sending, frames } = recorded();
  const streams = new Streams({ role, settings: SETTINGS, sending, rtt: () => 0, idle() {} });
  const pings = new Pings();
  const opened: number[] = [];
  const goaways: (string | undefined)[] = [];
  const receiving = new Receiving({
    role,
    settings: SETTINGS,
    streams,
    sending,
    pings,
    opened: ({ id }) => opened.push(id),
    goaway(reason) {
      goaways.push(reason?.message);
      left();
    },
  });
  return { receiving, streams, sending, pings, frames, opened, goaways };
}

const open = (id: number) => Buffer.concat(headersFrames(id, encodeHead(REQUEST), false, 16_384));
const broken = (code: number) => (error: unknown) => error instanceof ConnectionError && error.code === code;

for (const size of [1, 5, PREFACE.length, PREFACE.length + 3]) {
  test(`a server reads the preface in pieces of ${size}, and what follows`, () => {
    const { receiving, opened } = receivingOf('server');
    const words = Buffer.concat([PREFACE, HELLO, open(1)]);
    for (let at = 0; at < words.length; at += size) receiving.read(words.subarray(at, at + size));
    assert.deepEqual(opened, [1]);
  });
}

test('a server refuses what is no preface from the first byte that differs', () => {
  const { receiving } = receivingOf('server');
  receiving.read(Buffer.from('PRI * HTTP/'));
  assert.throws(() => receiving.read(Buffer.from('1')), broken(ErrorCode.PROTOCOL_ERROR));
});

test('SETTINGS are adopted and acknowledged, an acknowledgement is not', async () => {
  const { receiving, sending, frames } = receivingOf('client');
  receiving.read(settingsFrame({ maxFrameSize: 20_000 }));
  receiving.read(settingsAck());
  await turn();
  assert.deepEqual(frames, [settingsAck()]);
  assert.equal(sending.maxFrame, 20_000);
});

test('a PING is answered with its own bytes, and an answer is taken for ours', async () => {
  const { receiving, pings, frames } = receivingOf('client');
  let answers = 0;
  pings.begin(() => answers++);
  receiving.read(HELLO);
  receiving.read(pingFrame(OPAQUE, false));
  assert.equal(answers, 0);
  receiving.read(pingFrame(OPAQUE, true));
  assert.equal(answers, 1);
  await turn();
  assert.deepEqual(frames, [settingsAck(), pingFrame(OPAQUE, true)]);
});

test('a GOAWAY in good order refuses what the other side has not seen, and no more', () => {
  const { receiving, streams, goaways } = receivingOf('client');
  const [seen, unseen] = [streams.request(REQUEST), streams.request(REQUEST)];
  unseen.on('error', () => {});
  receiving.read(HELLO);
  receiving.read(goawayFrame(seen.id));
  assert.deepEqual(goaways, [undefined]);
  assert.deepEqual([seen.destroyed, unseen.rstCode], [false, ErrorCode.REFUSED_STREAM]);
});

test('a GOAWAY with an error says which, and why', () => {
  const { receiving, goaways } = receivingOf('client');
  receiving.read(HELLO);
  receiving.read(goawayFrame(0, ErrorCode.ENHANCE_YOUR_CALM, 'too many pings'));
  assert.deepEqual(goaways, ['the other side ended it: ENHANCE_YOUR_CALM too many pings']);
});

const refused: [what: string, frame: Buffer, code: number][] = [
  ['PUSH_PROMISE', raw(FrameType.PUSH_PROMISE, 4, 1, encodeHead(REQUEST)), ErrorCode.PROTOCOL_ERROR],
  ['a stream that the server opens', open(2), ErrorCode.PROTOCOL_ERROR],
  ['a GOAWAY of seven bytes', raw(FrameType.GOAWAY, 0, 0, Buffer.alloc(7)), ErrorCode.FRAME_SIZE_ERROR],
  ['RST_STREAM of three bytes', raw(FrameType.RST_STREAM, 0, 1, Buffer.alloc(3)), ErrorCode.FRAME_SIZE_ERROR],
];

for (const [what, frame, code] of refused) {
  test(`a client refuses ${what}`, () => {
    const { receiving, streams } = receivingOf('client');
    streams.request(REQUEST);
    receiving.read(HELLO);
    assert.throws(() => receiving.read(frame), broken(code));
  });
}

test('frames of which nobody knows anything are passed over', async () => {
  const { receiving, opened, frames, goaways } = receivingOf('server');
  const unknown = [raw(0xaf, 0xff, 1, Buffer.from('who knows')), raw(FrameType.PRIORITY, 0, 7, Buffer.alloc(5))];
  receiving.read(Buffer.concat([PREFACE, HELLO, ...unknown, open(1)]));
  await turn();
  assert.deepEqual([opened, frames, goaways], [[1], [settingsAck()], []]);
});

test('nothing is read any more once it is stopped, also of what came with it', () => {
  const { receiving, opened, goaways } = receivingOf('server', () => receiving.stop());
  receiving.read(Buffer.concat([PREFACE, HELLO, goawayFrame(0), open(1)]));
  receiving.read(open(3));
  assert.deepEqual([goaways.length, opened], [1, []]);
});

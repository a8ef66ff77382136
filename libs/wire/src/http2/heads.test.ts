import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { ConnectionError, ErrorCode, Flag } from './frames.ts';
import { contentOf, encodeHead, type Field, HeadReader } from './heads.ts';
import { Incoming } from './incoming.ts';

const POST: readonly Field[] = [
  [':method', 'POST'],
  [':scheme', 'http'],
  [':path', '/'],
];
const CONNECT: readonly Field[] = [
  [':method', 'CONNECT'],
  [':authority', 'h:1'],
];
const OK: readonly Field[] = [[':status', '200']];
const EARLY: readonly Field[] = [[':status', '102']];
const TRAILERS: readonly Field[] = [['a', 'b']];
const { PROTOCOL_ERROR, STREAM_CLOSED } = ErrorCode;

type Say = (incoming: Incoming) => number | undefined;
const section =
  (fields: readonly Field[], ends = false): Say =>
  (incoming) =>
    incoming.section(fields, ends);
const data =
  (bytes: number): Say =>
  (incoming) =>
    incoming.receive(bytes);
const end: Say = (incoming) => incoming.end();

const incoming = (state: 'head' | 'body', content?: number) =>
  new Incoming(state, { config: WIRE, rtt: () => 0 }, content);
const answer = () => incoming('head');

function request(fields: readonly Field[]): Incoming {
  const content = contentOf(fields);
  assert.ok(!Number.isNaN(content), 'a request that is well-formed');
  return incoming('body', content);
}

const lengthOf = (length: string) => request([...POST, ['content-length', length]]);

/** What is said in a row, and what the last of it is. */
const cases: [what: string, incoming: () => Incoming, said: Say[], code: number | undefined][] = [
  ['a request with data, trailers and an end', () => request(POST), [data(1), section(TRAILERS, true)], undefined],
  ['trailers without an end', () => request(POST), [section(TRAILERS)], PROTOCOL_ERROR],
  ['a second request', () => request(POST), [section(POST, true)], PROTOCOL_ERROR],
  ['data behind the end', () => request(POST), [end, data(1)], STREAM_CLOSED],
  ['trailers behind the end', () => request(POST), [end, section(TRAILERS, true)], STREAM_CLOSED],
  ['as much as was said', () => lengthOf('3'), [data(1), data(2), end], undefined],
  ['more than was said', () => lengthOf('3'), [data(1), data(3)], PROTOCOL_ERROR],
  ['less than was said', () => lengthOf('3'), [data(1), end], PROTOCOL_ERROR],
  ['less than was said, and trailers', () => lengthOf('3'), [section(TRAILERS, true), end], PROTOCOL_ERROR],
  [
    'a tunnel whose CONNECT has a length',
    () => request([...CONNECT, ['content-length', '1']]),
    [data(100), end],
    undefined,
  ],
  [
    'informational ones without an end',
    answer,
    Array.from({ length: 17 }, () => section(EARLY)),
    ErrorCode.ENHANCE_YOUR_CALM,
  ],
  [
    'an answer behind informational ones',
    answer,
    [section(EARLY), section(EARLY), section(OK), data(1), end],
    undefined,
  ],
  ['an answer that is its end', answer, [section(OK, true)], undefined],
  ['data ahead of the answer', answer, [section(EARLY), data(1)], PROTOCOL_ERROR],
  ['an end ahead of the answer', answer, [end], PROTOCOL_ERROR],
  ['an informational answer that is its end', answer, [section(EARLY, true)], PROTOCOL_ERROR],
  ['a second answer', answer, [section(OK), section(OK, true)], PROTOCOL_ERROR],
  ['an answer that is a request', answer, [section(POST)], PROTOCOL_ERROR],
  ['an answer without a status', answer, [section(TRAILERS, true)], PROTOCOL_ERROR],
  ['a status that is none', answer, [section([[':status', '2000']])], PROTOCOL_ERROR],
];

for (const [what, make, said, code] of cases) {
  test(`${what} is ${code === undefined ? 'in order' : 'an error'}`, () => {
    const incoming = make();
    const codes = said.map((say) => say(incoming));
    assert.deepEqual(codes, [...codes.slice(0, -1).map(() => undefined), code]);
  });
}

const malformed: [what: string, ...fields: Field[]][] = [
  ['no method', [':scheme', 'http'], [':path', '/']],
  ['no scheme', [':method', 'GET'], [':path', '/']],
  ['an empty path', [':method', 'GET'], [':scheme', 'http'], [':path', '']],
  ['two paths', ...POST, [':path', '/']],
  ['a field of HTTP/2 that is none', ...POST, [':later', 'x']],
  ["an answer's field", ...POST, [':status', '200']],
  ['a field of HTTP/2 behind others', ['a', 'b'], ...POST],
  ['a name with a capital', ...POST, ['A', 'b']],
  ['an empty name', ...POST, ['', 'b']],
  ["a line's end in a value", ...POST, ['a', 'b\r\nc']],
  ['a field of HTTP/1.1', ...POST, ['transfer-encoding', 'chunked']],
  ['te with more than trailers', ...POST, ['te', 'gzip']],
  ['a CONNECT with a path', ...CONNECT, [':path', '/']],
  ['a CONNECT to nowhere', [':method', 'CONNECT']],
  ['a length that is none', ...POST, ['content-length', '-1']],
  ['two lengths', ...POST, ['content-length', '1'], ['content-length', '2']],
];

for (const [what, ...fields] of malformed) {
  test(`a request with ${what} is malformed`, () => assert.equal(contentOf(fields), Number.NaN));
}

const calm = (error: unknown) =>
  error instanceof ConnectionError &&
  error.code === ErrorCode.ENHANCE_YOUR_CALM &&
  /too many long heads/.test(error.message);

test('heads that are not complete share what they may hold beyond a frame', () => {
  const whole = encodeHead({ ':status': '200', a: 'b' });
  const begin = () => {
    const reader = new HeadReader({ ...WIRE, headBytes: WIRE.unfinishedHeadBytes }, () => {});
    reader.headers(1, 0, whole.subarray(0, 2));
    return { reader, more: (bytes: number) => reader.continuation(0, Buffer.alloc(bytes)) };
  };
  const [first, second, third] = [begin(), begin(), begin()];
  first.more(WIRE.unfinishedHeadBytes - 1024);
  assert.throws(() => second.more(1024), calm);
  // One of two frames needs no room.
  assert.equal(third.reader.continuation(Flag.END_HEADERS, whole.subarray(2))?.fields?.length, 2);
  // The connection has ended, so others have room again.
  first.reader.drop();
  assert.equal(second.more(1024), undefined);
  second.reader.drop();
  assert.equal(second.reader.headers(1, Flag.END_HEADERS, whole)?.fields?.length, 2);
});

test('what is held of a head in short frames counts with what each takes in memory', () => {
  const readers: HeadReader[] = [];
  const fill = () => {
    const reader = new HeadReader({ ...WIRE, headBytes: 1024 * 1024 }, () => {});
    readers.push(reader);
    reader.headers(1, 0, Buffer.alloc(1));
    for (let frame = 0; frame < 6_000; frame++) reader.continuation(0, Buffer.alloc(1));
  };
  assert.throws(() => {
    for (let head = 0; head < 20; head++) fill();
  }, calm);
  for (const reader of readers) reader.drop();
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkName, inWords, isName } from './names.ts';

test('ordinary names are accepted', () => {
  for (const name of ['', 'a1', 'node 7', 'ip-10-0-0-1.ec2.internal', '工場', 'x'.repeat(264)]) {
    assert.equal(checkName('agent id', name), name);
  }
});

for (const [what, character] of [
  ['NUL', '\0'],
  ['a line’s end', '\n'],
  ['ESC', '\x1b'],
  ['DEL', '\x7f'],
  ['a C1 control', '\x9b'],
  ['a line separator', '\u2028'],
  ['a right-to-left override', '\u202e'],
]) {
  test(`a name with ${what} is rejected with an error that does not contain the name`, () => {
    const name = `agent${character}2`;
    assert.equal(isName(name), false);
    assert.throws(() => checkName('agent id', name), { message: /^agent id with control characters: [ -~]+$/ });
  });
}

test('a name that is too long is rejected with an error that has its length', () => {
  assert.throws(() => checkName('tenant', 'x'.repeat(265)), /tenant of 265 characters: at most 264/);
});

const REFUSED = 'connect ECONNREFUSED 127.0.0.1:1';

const OPENSSL =
  'write EPROTO 40C7A1B2:error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../deps/openssl/openssl/ssl/record/ssl3_record.c:355:\n';

const CASES: readonly (readonly [error: unknown, words: string])[] = [
  [
    new Error(
      'Reached the max retries per request limit (which is 0). Refer to "maxRetriesPerRequest" option for details.',
    ),
    'the connection broke before an answer came',
  ],
  [new Error("Stream isn't writeable and enableOfflineQueue options is false"), 'there is no connection'],
  [new Error('Connection is closed.'), 'the connection is closed'],
  [new Error('Command timed out'), 'no answer in time'],
  [
    new Error(
      `No connection established. Last error: Error: ${REFUSED} (2026-11-22T13:00:00.000Z). Resolution note: none`,
    ),
    REFUSED,
  ],
  [new Error(`No connection established. Last error: ${REFUSED}. Resolution note: `), REFUSED],
  [new Error('Received RST_STREAM with code 2'), 'the stream was reset, HTTP/2 code 2'],
  [new Error(OPENSSL), 'the other side speaks no TLS'],
  [new Error('error:0A00009C:SSL routines::http request'), 'plain HTTP came where TLS is spoken'],
  [new Error('error:0480006C:PEM routines::no start line'), 'it holds no PEM text'],
  [
    new Error('error:05800074:x509 certificate routines::key values mismatch'),
    'the key is not that of the certificate',
  ],
  [
    new Error('408C:error:0A000410:SSL routines:ssl3_read_bytes:ssl/tls alert handshake failure:s.c:1605:SSL alert 40'),
    'TLS: ssl/tls alert handshake failure',
  ],
  [new AggregateError([new Error(REFUSED), new Error('connect ECONNREFUSED ::1:1')], ''), REFUSED],
  [new TypeError('fetch failed', { cause: new AggregateError([new Error(REFUSED)], '') }), REFUSED],
  ['a word', 'a word'],
  [new RangeError(), 'RangeError'],
  [new Error('dial tcp 127.0.0.1:1: connect: connection refused'), 'dial tcp 127.0.0.1:1: connect: connection refused'],
  [new Error('WRONGPASS invalid username-password pair'), 'WRONGPASS invalid username-password pair'],
];

test('error texts of libraries are translated for operators', () => {
  for (const [error, words] of CASES) assert.equal(inWords(error), words);
});

test('only the first 2,000 characters of a text are used', () => {
  assert.equal(inWords(new Error('x'.repeat(100_000))).length, 2000);
});

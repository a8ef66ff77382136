import assert from 'node:assert/strict';
import test from 'node:test';
import { ConnectReader, RequestRefused } from './connect-request.ts';

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

function read(text: string, step = text.length) {
  const reader = new ConnectReader();
  const bytes = Buffer.from(text, 'latin1');
  for (let at = 0; at < bytes.length; at += step) {
    const request = reader.push(bytes.subarray(at, at + step));
    if (request) return { ...request, rest: request.rest.toString('latin1') };
  }
  return undefined;
}

test('a request is the same wherever it is split', () => {
  const text = `CONNECT [::1]:443 HTTP/1.1\r\nHost: elsewhere:1\r\nTraceParent: \t${TRACE} \r\nContent-Length: 0\r\n\r\n`;
  const wanted = { target: '[::1]:443', traceparent: TRACE, rest: '' };
  for (let step = 1; step <= text.length; step++) assert.deepEqual(read(text, step), wanted, `${step} bytes at a time`);
});

test('what stands behind the head is the tunnel’s', () => {
  assert.deepEqual(read('CONNECT a:1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n'), {
    target: 'a:1',
    rest: 'GET / HTTP/1.1\r\n\r\n',
  });
});

test('a head without its end is no request yet', () => {
  assert.equal(read('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n'), undefined);
});

const refusals: [name: string, text: string, status: number, message: RegExp][] = [
  ['another method', 'DELETE / HTTP/1.1\r\n\r\n', 405, /CONNECT, not "DELETE"/],
  ['a method of 16 KB', `${'x'.repeat(16_000)} / HTTP/1.1\r\n\r\n`, 405, /not "x{60}"$/],
  ['an older version', 'CONNECT a:1 HTTP/1.0\r\n\r\n', 400, /HTTP\/1\.0 is not served/],
  ['no version', 'CONNECT a:1\r\n\r\n', 400, /not an HTTP request: "CONNECT a:1"/],
  ['two spaces', 'CONNECT  a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a line that ends with a line feed alone', 'CONNECT a:1 HTTP/1.1\nHost: a\r\n\r\n', 400, /not an HTTP request/],
  ['a line feed within a value', 'CONNECT a:1 HTTP/1.1\r\nX: a\nY: b\r\n\r\n', 400, /not a header field/],
  ['a space before the colon', 'CONNECT a:1 HTTP/1.1\r\nContent-Length : 0\r\n\r\n', 400, /not a header field/],
  ['a length in two numbers', 'CONNECT a:1 HTTP/1.1\r\nContent-Length: 0, 5\r\n\r\n', 400, /no body/],
  [
    'a length that is overruled',
    'CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n',
    400,
    /no body/,
  ],
  ['a first byte of TLS', '\x16', 400, /not an HTTP request/],
  ['an empty line ahead', '\r\nCONNECT a:1 HTTP/1.1\r\n\r\n', 400, /not an HTTP request/],
  ['a head without an end', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(16_384)}`, 431, /longer than 16384 bytes/],
  ['a head that is too long', `CONNECT a:1 HTTP/1.1\r\nX: ${'x'.repeat(16_384)}\r\n\r\n`, 431, /longer than 16384/],
];
for (const [name, text, status, message] of refusals) {
  test(`${name} is refused with ${status}`, () => {
    assert.throws(
      () => read(text),
      (error) => error instanceof RequestRefused && error.status === status && message.test(error.message),
    );
  });
}

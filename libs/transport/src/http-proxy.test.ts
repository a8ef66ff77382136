import assert from 'node:assert/strict';
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { parseDestination } from '@isthmus/tunnel';
import { type HttpProxy, proxyFromEnvironment, throughProxy } from './http-proxy.ts';

/** Each answer is what Go's `httpproxy.FromEnvironment().ProxyFunc()` gives for `https://` and the host. */
const EXEMPT: readonly (readonly [noProxy: string, exempt: readonly string[], proxied: readonly string[]])[] = [
  ['', ['localhost:1', '127.0.0.1:1', '127.8.8.8:1', '[::1]:1'], ['hub.example:1', '10.0.0.1:1']],
  ['*', ['hub.example:1', '10.0.0.1:1', '[2001:db8::1]:1'], []],
  ['a.example, *', ['hub.example:1'], []],
  ['hub.example', ['hub.example:1', 'HUB.example:1', 'a.hub.example:1'], ['ahub.example:1', 'example:1', '10.0.0.1:1']],
  ['.hub.example', ['a.hub.example:1', 'b.a.hub.example:1'], ['hub.example:1']],
  ['*.hub.example', ['a.hub.example:1'], ['hub.example:1']],
  [' HUB.Example ,b.example', ['hub.example:1', 'b.example:1'], ['c.example:1']],
  ['hub.example:8091', ['hub.example:8091', 'a.hub.example:8091'], ['hub.example:8132']],
  ['10.0.0.0/8', ['10.9.8.7:1'], ['11.0.0.1:1', '[2001:db8::1]:1', 'hub.example:1', '10.example:1']],
  ['10.1.2.3/8', ['10.9.8.7:1'], ['11.0.0.1:1']],
  ['10.0.0.1', ['10.0.0.1:1'], ['10.0.0.10:1', '110.0.0.1:1']],
  ['10.0.0.1:8091', ['10.0.0.1:8091'], ['10.0.0.1:8132']],
  ['2001:db8::/32', ['[2001:db8::1]:1'], ['[2001:db9::1]:1', '10.0.0.1:1']],
  ['2001:db8::1', ['[2001:db8::1]:1', '[2001:db8:0:0::1]:1'], ['[2001:db8::2]:1']],
  ['[2001:db8::1]:8091', ['[2001:db8::1]:8091'], ['[2001:db8::1]:8132']],
  [',, :8091,10.0.0.0/99,10.0.0.0/x,/', [], ['hub.example:8091', '10.0.0.1:8091']],
  [
    '10.0.0.0/,10.0.0.0/ 8,10.0.0.0/0x8,10.0.0.0/+8,10.0.0.0/8.0,::/',
    [],
    ['10.0.0.1:1', '11.0.0.1:1', '[2001:db8::1]:1'],
  ],
  ['*.', [], ['hub.example:1']],
  ['10.0', [], ['10.0.0.1:1']],
];

for (const [list, exempt, proxied] of EXEMPT) {
  test(`NO_PROXY=${list}`, () => {
    const proxyFor = proxyFromEnvironment({ HTTPS_PROXY: 'http://proxy.example:3128', NO_PROXY: list });
    const via = (host: string) => proxyFor?.(parseDestination(host))?.name;
    for (const host of exempt) assert.equal(via(host), undefined, host);
    for (const host of proxied) assert.equal(via(host), 'http://proxy.example:3128', host);
  });
}

const HUB = { host: 'hub.example', port: 8091 };

test('HTTPS_PROXY and NO_PROXY count before the same names in lower case, and an empty one as unset; HTTP_PROXY does not count', () => {
  const via = (env: Record<string, string>) => proxyFromEnvironment(env)?.(HUB)?.name;
  assert.equal(via({ HTTPS_PROXY: 'http://upper', https_proxy: 'http://lower' }), 'http://upper:80');
  assert.equal(via({ HTTPS_PROXY: '', https_proxy: 'http://lower' }), 'http://lower:80');
  assert.equal(via({ HTTP_PROXY: 'http://plain', http_proxy: 'http://plain', ALL_PROXY: 'http://all' }), undefined);
  assert.equal(via({ https_proxy: 'http://lower', no_proxy: '*' }), undefined);
  assert.equal(via({ https_proxy: 'http://lower', NO_PROXY: 'other.example', no_proxy: '*' }), 'http://lower:80');
});

test("a proxy's URL gives its address, its credentials, and a name without them", () => {
  const of = (HTTPS_PROXY: string) => proxyFromEnvironment({ HTTPS_PROXY })?.(HUB);
  const plain = { host: 'proxy.example', port: 3128, secure: false, name: 'http://proxy.example:3128' };
  assert.deepEqual(of('http://proxy.example:3128'), plain);
  assert.deepEqual(of('proxy.example:3128/'), plain);
  assert.deepEqual(of('http://us%40er:p%3As%2Fs@proxy.example:3128'), { ...plain, credentials: 'us@er:p:s/s' });
  assert.deepEqual(of('user@proxy.example:3128'), { ...plain, credentials: 'user:' });
  assert.deepEqual(of('https://[2001:db8::1]'), {
    host: '2001:db8::1',
    port: 443,
    secure: true,
    name: 'https://[2001:db8::1]:443',
  });
});

test('a proxy that cannot be used is an error that does not show its password', () => {
  for (const HTTPS_PROXY of [
    'socks5://u:geheim@proxy.example:1080',
    'http://u:geheim@',
    'http://u:geheim%zz@proxy.example',
    '::geheim',
    'http://user:12345/geheim@proxy.example:3128',
    'http://12345?geheim@proxy.example:3128',
    'http://user:12345#geheim@proxy.example:3128',
    'http://proxy.example:3128/geheim',
  ]) {
    assert.throws(
      () => proxyFromEnvironment({ HTTPS_PROXY }),
      (error: Error) => {
        assert.match(error.message, /HTTPS_PROXY/);
        assert.doesNotMatch(`${error.stack}`, /12345/);
        assert.doesNotMatch(`${error.stack}`, /geheim/);
        return true;
      },
    );
  }
});

const TO = { host: 'hub.example', port: 8091 };
const PATIENCE = 60_000;

async function listening(context: TestContext, server: net.Server): Promise<HttpProxy> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return { host: '127.0.0.1', port, secure: false, name: 'http://proxy.example:3128' };
}

/** A proxy that answers every connection with these bytes once it has read a request. */
function answering(context: TestContext, ...pieces: readonly string[]): Promise<HttpProxy> {
  const server = net.createServer((socket) => {
    socket.once('data', () => {
      for (const piece of pieces) socket.write(piece, 'latin1');
    });
  });
  return listening(context, server);
}

async function failure(attempt: Promise<Socket>): Promise<string> {
  const error = await attempt.then(
    () => assert.fail('it connected'),
    (error: Error) => error,
  );
  return error.message;
}

test('asks for the destination by name, with the credentials, and hands over every byte after the answer', async (context) => {
  const asked: IncomingMessage[] = [];
  const server = http.createServer().on('connect', (request, socket) => {
    asked.push(request);
    socket.write('HTTP/1.1 200 Connection established\r\nx: y\r\n\r\nfirst ');
    socket.pipe(socket);
  });
  const proxy = { ...(await listening(context, server)), credentials: 'üser:p:s' };
  const socket = await throughProxy(proxy, TO, { timeout: PATIENCE });
  let seen = '';
  socket.on('data', (chunk) => {
    seen += chunk;
  });
  socket.write('second');
  while (seen.length < 12) await once(socket, 'data');
  socket.destroy();
  assert.equal(seen, 'first second');
  const [request] = asked as [IncomingMessage];
  assert.equal(request.url, 'hub.example:8091');
  assert.equal(request.headers.host, 'hub.example:8091');
  const basic = Buffer.from('üser:p:s').toString('base64');
  assert.equal(request.headers['proxy-authorization'], `Basic ${basic}`);
});

const REFUSALS: readonly (readonly [answer: string, credentials: string | undefined, says: RegExp])[] = [
  [
    'HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="x"',
    undefined,
    /it answered 407 Proxy Authentication Required to CONNECT hub\.example:8091, asking for Basic: put a user and password/,
  ],
  [
    'HTTP/1.1 407 No\r\nproxy-authenticate: NTLM',
    'u:geheim',
    /asking for NTLM: check the user and password in HTTPS_PROXY/,
  ],
  [
    'HTTP/1.1 403 Forbidden',
    'u:geheim',
    /403 Forbidden to CONNECT hub\.example:8091: allow it at the proxy, or .* NO_PROXY/,
  ],
  ['HTTP/1.0 503 Down', undefined, /503 Down .* the proxy cannot reach it/],
  ['HTTP/1.1 301 Moved\r\nlocation: http://login.example/', undefined, /301 Moved .* allow it at the proxy/],
  ['HTTP/1.1 500', undefined, /it answered 500 to CONNECT/],
  ['HTTP/1.1 403 \u001b[31mred', undefined, /403 \\u\{1b\}\[31mred/],
  ['SSH-2.0-OpenSSH_9.2', undefined, /not an HTTP\/1\.1 answer: "SSH-2\.0-OpenSSH_9\.2/],
  ['HTTP/1.1 99999999999 no', undefined, /not an HTTP\/1\.1 answer/],
];
for (const [answer, credentials, says] of REFUSALS) {
  test(`a proxy that answers ${JSON.stringify(answer)}`, async (context) => {
    const proxy = { ...(await answering(context, `${answer}\r\n\r\n`)), ...(credentials && { credentials }) };
    const said = await failure(throughProxy(proxy, TO, { timeout: PATIENCE }));
    assert.match(said, says);
    assert.match(said, /^through the proxy http:\/\/proxy\.example:3128: /);
    assert.doesNotMatch(said, /geheim/);
  });
}

test('a head without an end is read up to a bound', async (context) => {
  const proxy = await answering(context, 'HTTP/1.1 200 OK\r\n', ...Array(40).fill(`x: ${'y'.repeat(1000)}\r\n`));
  assert.match(await failure(throughProxy(proxy, TO, { timeout: PATIENCE })), /head is longer than 16384 bytes/);
});

test('a proxy that hangs up, or that nobody runs', async (context) => {
  const server = net.createServer((socket) => socket.once('data', () => socket.end()));
  const proxy = await listening(context, server);
  assert.match(await failure(throughProxy(proxy, TO, { timeout: PATIENCE })), /closed before an answer/);
  server.close();
  await once(server, 'close');
  assert.match(await failure(throughProxy(proxy, TO, { timeout: PATIENCE })), /ECONNREFUSED/);
});

const SILENCES: readonly (readonly [does: string, serve: (socket: Socket) => void])[] = [
  ['says nothing', () => {}],
  [
    'drips a head byte by byte',
    (socket) => {
      const drip = setInterval(() => socket.write('x'), 5);
      socket.once('close', () => clearInterval(drip));
    },
  ],
];
for (const secure of [false, true]) {
  for (const [does, serve] of SILENCES) {
    if (secure && does !== 'says nothing') continue;
    test(`a proxy that ${does}${secure ? ' where TLS should begin' : ''} costs no more than the deadline, and no socket`, async (context) => {
      const accepted: Socket[] = [];
      const server = net.createServer((socket) => {
        accepted.push(socket);
        socket.resume();
        serve(socket);
      });
      const proxy = { ...(await listening(context, server)), secure };
      const start = performance.now();
      assert.match(await failure(throughProxy(proxy, TO, { timeout: 200 })), /no answer within 0\.2 s/);
      assert.ok(performance.now() - start < PATIENCE);
      for (const socket of accepted) if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
    });
  }
}

test('an attempt that is given up ends at once', async (context) => {
  const attempt = new AbortController();
  const server = net.createServer((socket) => socket.once('data', () => attempt.abort()));
  const proxy = await listening(context, server);
  const said = await failure(throughProxy(proxy, TO, { timeout: PATIENCE, signal: attempt.signal }));
  assert.match(said, /abandoned/);
  assert.match(await failure(throughProxy(proxy, TO, { timeout: PATIENCE, signal: attempt.signal })), /abandoned/);
});

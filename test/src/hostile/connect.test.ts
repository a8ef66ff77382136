import assert from 'node:assert/strict';
import { once } from 'node:events';
import test from 'node:test';
import { allInOne, echo, Scope, tunnelThrough, within } from '../harness/index.ts';
import { attack, bystander, raw, refused, saidUntilEnd } from './rig.ts';

/** Requests that the server refuses, with the status line of the answer. */
const REFUSED: readonly [name: string, request: string | Buffer, answer: RegExp][] = [
  ['HTTP/0.9', 'CONNECT localhost:1 HTTP/0.9\r\n\r\n', /^HTTP\/1\.1 505 .*HTTP\/0\.9/],
  ['GET', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 405 /],
  ['POST with a body', `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello`, /^HTTP\/1\.1 405 /],
  [
    'POST without the body it promises',
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\nhello',
    /^HTTP\/1\.1 405 /,
  ],
  ['an upgrade', 'GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n', /^HTTP\/1\.1 405 /],
  ['a body of known length', connect('localhost:1', 'Content-Length: 5'), /^HTTP\/1\.1 400 .*no body/],
  ['a chunked body', connect('localhost:1', 'Transfer-Encoding: chunked'), /^HTTP\/1\.1 400 .*no body/],
  ['an invalid length', connect('localhost:1', 'Content-Length: -5'), /^HTTP\/1\.1 400 /],
  ['two lengths', connect('localhost:1', 'Content-Length: 5', 'Content-Length: 6'), /^HTTP\/1\.1 400 /],
  ['a header of 64 KiB', connect('localhost:1', `X: ${'x'.repeat(65_536)}`), /^HTTP\/1\.1 431 /],
  [
    '10,000 headers',
    connect('localhost:1', ...Array.from({ length: 10_000 }, (_, i) => `X${i}: x`)),
    /^HTTP\/1\.1 431 /,
  ],
  ['a target of 1 MiB', connect(`${'x'.repeat(1 << 20)}:1`), /^HTTP\/1\.1 431 /],
  ['a NUL byte in the target', connect('local\0host:1'), /^HTTP\/1\.1 400 /],
  ['a NUL byte in a header', connect('localhost:1', 'X: a\0b'), /^HTTP\/1\.1 400 /],
  ['a header without a colon', connect('localhost:1', 'nonsense'), /^HTTP\/1\.1 400 /],
  ['a folded header', connect('localhost:1', 'X: a', ' b'), /^HTTP\/1\.1 400 /],
];

/** Request-targets that name no destination. */
const BAD_AUTHORITIES = [
  'localhost',
  'localhost:',
  ':80',
  'localhost:0',
  'localhost:65536',
  'localhost:99999999999999999999',
  'localhost:-1',
  'localhost:8e1',
  'localhost:0x50',
  'localhost:80:80',
  '::1:80',
  '[::1]',
  '[::1]80',
  '[::1:80',
  '[localhost]:80',
  '[::g]:80',
  '[1.2.3.4]:80',
  'user@localhost:80',
  'http://localhost:80/',
  '/',
  '*',
  'localhost:80/path',
  'localhost:80?query',
  'local%00host:80%',
  `${'x'.repeat(254)}:80`,
];

function connect(target: string, ...headers: string[]): string {
  return [`CONNECT ${target} HTTP/1.1`, 'Host: 127.0.0.1', ...headers, '', ''].join('\r\n');
}

test('bad requests from HTTP CONNECT callers are answered and disturb nothing', async (t) => {
  await using scope = new Scope();
  const { server, agents } = await allInOne(scope);
  const { program, connect: via } = server;
  const destination = await echo(scope);
  const victim = await bystander(scope, via, destination.authority, [program, ...agents]);
  const ask = async (scope: Scope, request: string | Buffer) => {
    const socket = await raw(scope, via);
    socket.write(request);
    return saidUntilEnd(socket);
  };

  for (const [name, request, answer] of REFUSED) {
    await attack(t, victim, name, (scope) =>
      refused(program, 'http-connect', async () => assert.match(await ask(scope, request), answer)),
    );
  }

  for (const authority of BAD_AUTHORITIES) {
    await attack(t, victim, `the authority ${authority.slice(0, 40)}`, (scope) =>
      refused(program, 'http-connect', async () =>
        assert.match(await ask(scope, connect(authority)), /^HTTP\/1\.1 400 /),
      ),
    );
  }

  await attack(t, victim, 'names that no resolver knows', async (scope) => {
    for (const name of ['a..b', '-', '.', '1.2.3.4.5', '999.1.1.1', '%', '_', 'xn--', '\u00e4']) {
      const said = await ask(scope, Buffer.from(connect(`${name}:80`), 'latin1'));
      assert.match(said, /^HTTP\/1\.1 (400|502|504) /, name);
    }
  });

  await attack(t, victim, 'a header that nobody needs, 500 times', async (scope) => {
    const headers = Array.from({ length: 500 }, () => 'a:b');
    const tunnel = await tunnelThrough(scope, { via, destination: destination.authority, headers });
    assert.equal(await echoed(tunnel, 'hello'), 'hello');
  });

  await attack(t, victim, 'bytes after the head, which reach the destination', async (scope) => {
    const early = 'early '.repeat(20_000);
    const tunnel = await tunnelThrough(scope, { via, destination: destination.authority, early });
    assert.equal(await echoed(tunnel, 'late', early.length + 4), `${early}late`);
  });

  await attack(t, victim, 'pipelined requests: everything after the first belongs to the tunnel', async (scope) => {
    const second = connect('localhost:1');
    const tunnel = await tunnelThrough(scope, { via, destination: destination.authority, early: second });
    assert.equal(await echoed(tunnel, '.', second.length + 1), `${second}.`);
  });

  await attack(t, victim, 'pipelined requests after a refused one are not served', async (scope) => {
    const said = await ask(scope, `GET / HTTP/1.1\r\nHost: x\r\n\r\n${connect(destination.authority)}`);
    assert.match(said, /^HTTP\/1\.1 405 /);
    assert.equal(said.match(/HTTP\/1\.1 /g)?.length, 1);
  });

  await attack(t, victim, 'a caller that sends for ever after a refusal', async (scope) => {
    const socket = await raw(scope, via);
    socket.write(connect('nowhere'));
    const flood = setInterval(() => socket.writable && socket.write(Buffer.alloc(65_536)), 1);
    scope.defer(() => clearInterval(flood));
    assert.match(await saidUntilEnd(socket), /^HTTP\/1\.1 400 /);
    await within<unknown>(socket.closed ? Promise.resolve() : once(socket, 'close'), {
      what: 'its end',
    });
  });
});

/** Writes, and returns the first `length` bytes that come back. */
async function echoed(tunnel: NodeJS.ReadWriteStream, text: string, length = text.length): Promise<string> {
  let said = '';
  tunnel.write(text);
  const done = new Promise<void>((resolve) => {
    tunnel.on('data', (chunk) => {
      said += chunk.toString('latin1');
      if (said.length >= length) resolve();
    });
    tunnel.resume();
  });
  await within(done, { what: () => `an echo of ${length} bytes, got ${said.length}` });
  return said;
}

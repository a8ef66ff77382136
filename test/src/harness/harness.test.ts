import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import test, { mock } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import { Authority } from '@isthmus/certificates/testing';
import { DEADLINE_MS, eventually, until } from '@isthmus/runtime/testing';
import { balance } from './balancer.ts';
import { blackHole } from './black-hole.ts';
import { nextChunk } from './chunks.ts';
import { connectThrough, open, tunnelThrough } from './connect-caller.ts';
import { Digest, echo, refused, resetter, sink, source, stalled, web } from './destination.ts';
import { markdownTable, tableLine } from './docs-page.ts';
import { freePort, tempDir } from './places.ts';
import { startCommand } from './program.ts';
import { relayTo } from './relay.ts';
import { Scope, scoped } from './scope.ts';

function connectTo(scope: { defer(end: () => unknown): void }, port: number): Socket {
  const socket = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true });
  scope.defer(() => socket.destroy());
  return socket.on('error', () => {});
}

/** Advances a mocked clock by a millisecond per tick of the event loop until a condition holds. Returns how many milliseconds passed. */
async function tickUntil(isSo: () => boolean): Promise<number> {
  const end = performance.now() + DEADLINE_MS;
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    let passed = 0;
    for (; !isSo() && performance.now() < end; passed++) {
      await new Promise((turn) => setImmediate(turn));
      mock.timers.tick(1);
    }
    return passed;
  } finally {
    mock.timers.reset();
  }
}

test('a scope ends everything it holds in reverse order, even if one fails', async (t) => {
  const ended: string[] = [];
  const body = scoped(async (scope) => {
    scope.defer(() => ended.push('first'));
    scope.defer(() => Promise.reject(new Error('no')));
    scope.defer(() => ended.push('last'));
  });
  await assert.rejects(body(t), AggregateError);
  assert.deepEqual(ended, ['last', 'first']);
});

test('until names what it waited for and why the wait failed', async () => {
  await assert.rejects(
    until(() => false, { deadline: 20, what: 'Godot' }),
    /waited \d+ ms in vain for Godot/,
  );
  const hopeless = () => 'he is dead';
  await assert.rejects(
    until(() => false, { what: 'Godot', hopeless }),
    /for Godot \(he is dead\)/,
  );
  const failing = () => Promise.reject(new Error('not yet'));
  await assert.rejects(until(failing, { deadline: 20, what: 'Godot' }), /\(not yet\)/);
});

test('no cell breaks a table in Markdown', () => {
  const lines = [['bcd', 'x|y']].map(tableLine);
  assert.equal(markdownTable(['a', 'long'], lines), '| a | long |\n| --- | --- |\n| bcd | x\\|y |');
});

test(
  'a TLS server and its client accept what an authority issues, and nothing else',
  scoped(async (scope) => {
    const authority = await Authority.create(await tempDir(scope), 'callers');
    const identity = await authority.server();
    const options = {
      cert: readFileSync(identity.cert),
      key: readFileSync(identity.key),
      ca: readFileSync(authority.cert),
      requestCert: true,
    };
    const server = createTlsServer(options, (socket) => {
      socket.on('error', () => {});
      socket.end(`hello ${socket.getPeerCertificate().subject?.CN}`);
    });
    server.on('tlsClientError', (_error, socket) => socket.destroy());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    scope.defer(() => server.close());
    const { port } = server.address() as { port: number };
    const via = { port, ca: authority.cert };
    const greet = async (client: { cert: string; key: string }) => {
      const socket = await open(scope, { ...via, identity: client });
      const said = await text(socket);
      if (!said) throw new Error('nothing said');
      return said;
    };
    assert.equal(await greet(await authority.client('someone')), 'hello someone');
    await assert.rejects(greet(await authority.expired('someone')));
    await assert.rejects(greet(await authority.foreign('someone')));
  }),
);

test(
  'a program reports its lines, its log and its end',
  scoped(async (scope) => {
    const program = startCommand(scope, [
      'sh',
      '-c',
      'echo plain; echo \'{"msg":"up"}\'; trap "exit 3" TERM; while :; do sleep 0.05; done',
    ]);
    assert.equal((await program.waitForLog((line) => line.msg === 'up', { what: 'up' })).msg, 'up');
    assert.deepEqual(program.lines[0], 'plain');
    program.signal('SIGTERM');
    assert.deepEqual(await program.ended(), { code: 3, signal: null });
    await assert.rejects(program.waitForLine(/never/), /it has ended/);
    assert.equal(program.running, false);
  }),
);

test('a test that fails prints what its programs said last', async (context) => {
  const { mock } = context.mock.method(process.stderr, 'write', () => true);
  const fails = scoped(async (scope) => {
    await startCommand(scope, ['echo', 'last words']).waitForLine(/words/);
    assert.fail('on purpose');
  });
  await assert.rejects(fails(context), { message: 'on purpose' });
  assert.match(`${mock.calls[0]?.arguments[0]}`, /:\n--- echo \(pid \d+\) printed last:\nlast words\n---\n$/);
});

test(
  'a stopped program can still be killed',
  scoped(async (scope) => {
    const program = startCommand(scope, ['sleep', '60']);
    program.signal('SIGSTOP');
    await program.kill();
    assert.deepEqual(await program.exit, { code: null, signal: 'SIGKILL' });
  }),
);

test('a balancer goes on with hosts that pass their check', async () => {
  await using scope = new Scope();
  const port = await freePort();
  const up = new Set(['127.0.0.2', '127.0.0.3']);
  for (const host of up) {
    const here = createServer((socket) => socket.end(host)).listen(port, host);
    scope.defer(() => here.close());
  }
  const backends = [...up].map((host) => ({ host, port }));
  await balance(scope, { host: '127.0.0.9', port }, backends, async ({ host }) => up.has(host));
  const said = async () => text(connectTcp({ host: '127.0.0.9', port }));
  assert.deepEqual(new Set([await said(), await said()]), up);
  up.delete('127.0.0.2');
  await until(async () => (await said()) + (await said()) === '127.0.0.3127.0.0.3', 'the check');
});

test(
  'destinations do what they promise and count their sockets',
  scoped(async (scope) => {
    const destination = await source(scope, 3_000_001);
    const digest = new Digest();
    const socket = connectTo(scope, destination.port);
    for await (const chunk of socket) digest.update(chunk);
    assert.deepEqual([digest.bytes, digest.sha256], [3_000_001, destination.sha256]);
    socket.end();
    await eventually(() => assert.equal(destination.open, 0));

    const hashing = await sink(scope);
    const sender = connectTo(scope, hashing.port);
    sender.end('abc');
    assert.equal(await text(sender), `3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad`);

    const resetting = connectTo(scope, (await resetter(scope)).port);
    resetting.write('x');
    const [error] = await once(resetting, 'error');
    assert.equal(error.code, 'ECONNRESET');
  }),
);

test(
  'a refused port refuses, and a black hole does not even answer',
  scoped(async (scope) => {
    const [error] = await once(connectTo(scope, Number((await refused()).split(':')[1])), 'error');
    assert.equal(error.code, 'ECONNREFUSED');
    const port = Number((await blackHole(scope)).split(':')[1]);
    const socket = connectTo(scope, port);
    const events: string[] = [];
    for (const event of ['connect', 'error', 'close']) socket.on(event, () => events.push(event));
    await assert.rejects(until(() => events.length > 0, { deadline: 300, what: 'any event' }));
  }),
);

test(
  'a stalled destination lets nothing through until it is released',
  scoped(async (scope) => {
    const destination = await stalled(scope);
    const socket = connectTo(scope, destination.port);
    let flushed = 0;
    const chunk = Buffer.alloc(1 << 20);
    for (let i = 0; i < 64; i++) socket.write(chunk, () => flushed++);
    await until(() => destination.open === 1, { what: 'the connection' });
    assert.ok(flushed < 64);
    destination.release();
    await until(() => flushed === 64, { what: '64 MiB to pass' });
  }),
);

test(
  'a relay carries, pauses, delays, drops and resets',
  scoped(async (scope) => {
    const destination = await echo(scope);
    const relay = await relayTo(scope, destination.port);
    const dial = async () => {
      const socket = connectTo(scope, relay.port);
      const seen = { bytes: '', ended: false, closed: '' };
      socket.on('data', (chunk) => {
        seen.bytes += chunk;
      });
      socket.on('end', () => {
        seen.ended = true;
      });
      socket.on('close', () => {
        seen.closed = (socket.errored as NodeJS.ErrnoException | null)?.code ?? 'clean';
      });
      socket.write('a');
      await until(() => seen.bytes === 'a', { what: 'the first echo' });
      return { socket, seen };
    };
    const { socket, seen } = await dial();
    relay.pause();
    socket.write('b');
    await assert.rejects(until(() => seen.bytes.length > 1, { deadline: 100, what: 'a byte' }));
    relay.resume();
    await until(() => seen.bytes === 'ab', { what: 'what was held back' });
    relay.delayMs = 50;
    socket.write('c');
    socket.write('d');
    const passed = await tickUntil(() => seen.bytes === 'abcd' || socket.destroyed);
    assert.equal(seen.bytes, 'abcd');
    assert.ok(passed >= 2 * relay.delayMs, `what takes 50 ms each way came after ${passed} ms`);
    relay.delayMs = 0;
    relay.drop();
    await until(() => seen.ended, { what: 'the end' });
    socket.end();
    await until(() => seen.closed === 'clean' && relay.open === 0, { what: 'a clean close' });

    const second = await dial();
    relay.reset();
    await until(() => second.seen.closed === 'ECONNRESET', { what: 'a reset' });
    relay.refuse();
    const refusedSocket = connectTo(scope, relay.port);
    refusedSocket.write('x');
    await until(() => refusedSocket.destroyed, { what: 'the end of a connection that was refused' });
    relay.accept();
    await dial();
  }),
);

test(
  'a CONNECT caller separates the head, the body and the bytes after a head',
  scoped(async (scope) => {
    const answers = new Map([
      ['ok:1', ['HTTP/1.1 200 OK\r\n', '\r\n', '', 'later']],
      ['early:1', ['HTTP/1.1 200 OK\r\n\r\nearly']],
      ['bad:1', ['HTTP/1.1 502 Bad Gateway\r\nProxy-Status: a\r\nproxy-status: b\r\n\r\nwhy', ' not']],
    ]);
    const path = `${await tempDir(scope)}/proxy.sock`;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      const answer = async () => {
        const target = String(await nextChunk(socket, 'a request')).split(' ')[1] as string;
        for (const part of answers.get(target) ?? []) {
          // An empty part: wait for a byte of the caller, so that the next part is not in the same read.
          if (part) await new Promise((sent) => socket.write(part, sent));
          else await nextChunk(socket, 'a byte');
        }
        socket.end();
      };
      answer().catch((error) => socket.destroy(error));
    }).listen(path);
    await once(server, 'listening');
    scope.defer(() => server.close());
    const via = { uds: path };
    const socket = await tunnelThrough(scope, { via, destination: 'ok:1' });
    socket.write('go');
    assert.equal(await text(socket), 'later');
    assert.equal(String((await connectThrough(scope, { via, destination: 'early:1' })).head), 'early');
    assert.equal(await text(await tunnelThrough(scope, { via, destination: 'early:1' })), 'early');
    const bad = await connectThrough(scope, { via, destination: 'bad:1' });
    assert.deepEqual(
      [bad.status, bad.reason, bad.headers['proxy-status'], bad.body],
      [502, 'Bad Gateway', 'a, b', 'why not'],
    );
  }),
);

test('chunks that arrive in one turn are all read, one at a time, and a stream that ends meanwhile is an error', async () => {
  const stream = new PassThrough();
  const read = async () => {
    let seen = '';
    while (!seen.endsWith('.')) seen += await nextChunk(stream, 'a full stop');
    return seen;
  };
  const seen = read();
  setImmediate(() => {
    for (const part of ['a', 'b', 'c.']) stream.push(part);
  });
  assert.equal(await seen, 'abc.');
  stream.push('behind it.');
  assert.equal(await read(), 'behind it.');
  const never = read();
  setImmediate(() => stream.push(null));
  await assert.rejects(never, /ended before a full stop/);
});

test(
  'a web server answers every request on one connection',
  scoped(async (scope) => {
    const destination = await web(scope, 'hi');
    const url = `http://${destination.authority}/`;
    assert.deepEqual(await Promise.all([1, 2].map(async () => (await fetch(url)).text())), ['hi', 'hi']);
    const ports = new Set([await freePort(), await freePort()]);
    assert.equal(ports.size, 2);
  }),
);

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { isBuiltin } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test, { type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { RUNTIME } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { listen } from '../listen.ts';
import type { SocketEnd } from '../socket-end.ts';

test('a listener that stopped refuses callers, serves those that came before, and is idle when they have gone', async () => {
  const address = { host: '127.0.0.1', port: 0 };
  const answer = ({ stream }: SocketEnd) => void stream.end('late, but answered');
  const listener = await listen({ address, others: answer, events: planeEvents(), name: 'callers' });
  const port = Number(listener.address.split(':').at(-1));
  const before = net.connect(port, '127.0.0.1').setEncoding('utf8');
  await once(before, 'connect');
  await listener.stop();
  let idle = false;
  void listener.idle.then(() => {
    idle = true;
  });
  const [refusal] = (await once(net.connect(port, '127.0.0.1'), 'error')) as [NodeJS.ErrnoException];
  assert.equal(refusal.code, 'ECONNREFUSED');
  assert.equal(idle, false);
  before.write('hello');
  assert.deepEqual(await once(before, 'data'), ['late, but answered']);
  before.end();
  await listener.idle;
  await listener.close();
});

for (const tickMs of [0, 20]) {
  test(`a listener that stops takes what the kernel has accepted, and resets none (${tickMs} ms a tick)`, async (context) => {
    const address = { host: '127.0.0.1', port: 0 };
    const answer = ({ stream }: SocketEnd) => void stream.end('answered');
    const listener = await listen({ address, others: answer, events: planeEvents(), name: 'callers' });
    const port = Number(listener.address.split(':').at(-1));
    const callers = Array.from({ length: 50 }, () => net.connect(port, '127.0.0.1').setEncoding('utf8'));
    await Promise.all(callers.map((caller) => once(caller, 'connect')));
    context.after(slowTicks(tickMs));
    const answers = Promise.all(
      callers.map(async (caller) => {
        caller.write('hello');
        const [text] = await once(caller, 'data');
        caller.end();
        return text as string;
      }),
    );
    await listener.stop();
    assert.deepEqual(new Set(await answers), new Set(['answered']));
    await listener.idle;
    await listener.close();
  });
}

/** Makes each tick of the event loop take this long, as on a busy machine, until the function that it returns is called. */
function slowTicks(ms: number): () => void {
  const busy = () => {
    for (const end = performance.now() + ms; performance.now() < end; );
    immediate = setImmediate(busy);
  };
  let immediate = setImmediate(busy);
  return () => clearImmediate(immediate);
}

function directory(context: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-listen-'));
  context.after(() => rmSync(dir, { recursive: true }));
  return dir;
}

/** Says `says` to everyone who connects to the unix socket. */
function speaker(path: string, says: string, deleteExisting = true) {
  const speak = ({ stream }: SocketEnd) => void stream.end(says);
  const address = { path, deleteExisting };
  return listen({ address, others: speak, events: planeEvents(), name: 'callers' });
}

function ask(path: string): Promise<string> {
  const socket = net.connect(path);
  socket.write('GET');
  return text(socket);
}

test('a unix socket is for its owner and its group, and its file goes with it', async (context) => {
  const dir = directory(context);
  const path = join(dir, 'callers.sock');
  const listener = await speaker(path, 'hello', false);
  assert.equal(listener.address, path);
  assert.equal(lstatSync(path).mode & 0o777, 0o660);
  assert.equal(await ask(path), 'hello');
  await listener.close();
  assert.deepEqual(readdirSync(dir), []);
});

test('a process that took a unix socket over keeps it when the old one ends, by whichever way', async (context) => {
  const path = join(directory(context), 'callers.sock');
  for (const way of ['stop', 'close'] as const) {
    const old = await speaker(path, 'old');
    await assert.rejects(speaker(path, 'too early'), /another process listens there/);
    assert.equal(await ask(path), 'old');
    unlinkSync(path);
    assert.match(old.lost ?? '', /was deleted/);
    const taken = await speaker(path, 'new');
    assert.match(old.lost ?? '', /belongs to another process/);
    assert.equal(await ask(path), 'new');
    await old[way]();
    assert.equal(await ask(path), 'new', `after ${way}`);
    await Promise.all([old.close(), taken.close()]);
    assert.equal(existsSync(path), false);
  }
});

test('a unix socket that somebody removed is made again, and callers from before are served', {
  timeout: 60_000,
}, async (context) => {
  using _ = changed(RUNTIME, { socketLookMs: 50 });
  const dir = directory(context);
  const path = join(dir, 'callers.sock');
  const listener = await speaker(path, 'here');
  const before = net.connect(path);
  await once(before, 'connect');
  for (let time = 0; time < 2; time++) {
    unlinkSync(path);
    await until(() => existsSync(path), { what: 'the socket' });
    assert.equal(listener.lost, undefined);
    assert.equal(lstatSync(path).mode & 0o777, 0o660);
    assert.equal(await ask(path), 'here');
  }
  before.write('GET');
  assert.equal(await text(before), 'here');
  await listener.close();
  assert.deepEqual(readdirSync(dir), []);
});

const bound = () =>
  readFileSync('/proc/net/unix', 'latin1')
    .split('\n')
    .map((line) => line.split(' ').at(-1));

test('a unix socket is bound where it is, so that cleaners know that it lives', {
  skip: process.platform !== 'linux',
}, async (context) => {
  const dir = directory(context);
  const path = join(dir, 'callers.sock');
  const listener = await speaker(path, 'here');
  assert.ok(bound().includes(path), 'the kernel names another path');
  const config = join(dir, 'clean.conf');
  writeFileSync(config, `d ${dir} - - - 0\n`);
  // Where systemd is. It takes every file that nobody listens on.
  const { error } = spawnSync('systemd-tmpfiles', ['--clean', config]);
  assert.deepEqual(readdirSync(dir), error ? ['callers.sock', 'clean.conf'] : ['callers.sock']);
  await listener.close();
});

test('a process that leaves hands its unix socket over without a moment in which callers find none', {
  timeout: 60_000,
}, async (context) => {
  const dir = directory(context);
  const path = join(dir, 'callers.sock');
  const old = await speaker(path, 'old');
  old.leave();
  const answers: string[] = [];
  let over = false;
  context.after(() => {
    over = true;
  });
  const asking = Promise.all(
    Array.from({ length: 4 }, async () => {
      while (!over) answers.push(await ask(path));
    }),
  );
  let next = old;
  for (let time = 0; time < 20; time++) {
    const taken = await speaker(path, `next ${time}`);
    assert.match(next.lost ?? '', /belongs to another process/);
    assert.equal(await ask(path), `next ${time}`);
    await next.stop();
    await next.idle;
    await next.close();
    assert.equal(await ask(path), `next ${time}`, 'the old one leaves the file alone');
    next = taken;
    next.leave();
  }
  over = true;
  await asking;
  assert.deepEqual(
    answers.filter((answer) => !/^(old|next \d+)$/.test(answer)),
    [],
  );
  await next.close();
  assert.deepEqual(readdirSync(dir), []);
});

test('a process that leaves serves until its end, also once the one that took over has ended', {
  timeout: 60_000,
}, async (context) => {
  using _ = changed(RUNTIME, { socketLookMs: 50 });
  const path = join(directory(context), 'callers.sock');
  const old = await speaker(path, 'old');
  old.leave();
  const next = await speaker(path, 'next');
  await next.close();
  await until(() => existsSync(path), { what: 'the socket of the old one' });
  assert.equal(await ask(path), 'old');
  const third = await speaker(path, 'third');
  assert.equal(await ask(path), 'third');
  await Promise.all([old.close(), third.close()]);
});

test('a listener that stops takes its unix socket away first, and serves those that came before', async (context) => {
  const path = join(directory(context), 'callers.sock');
  const listener = await speaker(path, 'served');
  const callers = Array.from({ length: 20 }, () => net.connect(path));
  await Promise.all(callers.map((caller) => once(caller, 'connect')));
  const stopped = listener.stop();
  assert.equal(existsSync(path), false);
  assert.equal(listener.lost, undefined);
  const next = await speaker(path, 'the next');
  for (const caller of callers) caller.write('GET');
  assert.deepEqual(new Set(await Promise.all(callers.map((caller) => text(caller)))), new Set(['served']));
  await stopped;
  assert.equal(await ask(path), 'the next');
  await Promise.all([listener.close(), next.close()]);
});

test('what is in the way of a unix socket is left alone if it may not be deleted, or is no socket', async (context) => {
  const path = join(directory(context), 'callers.sock');
  const listener = await speaker(path, 'first');
  await assert.rejects(speaker(path, 'second', false), /exists already/);
  assert.equal(await ask(path), 'first');
  await listener.close();
  writeFileSync(path, 'precious');
  await assert.rejects(speaker(path, 'third'), /is not a unix socket/);
  assert.ok(existsSync(path));
});

/** Prints what the kernel takes for a peer that reads nothing, in bytes, at a unix socket of each kind. */
const FILLS = `
  import { once } from 'node:events';
  import net from 'node:net';
  process.constrainedMemory = () => 128 * 1024 * 1024;
  const { listen } = await import(process.argv[1]);
  const { planeEvents } = await import('@isthmus/tunnel');
  const taken = {};
  for (const name of ['callers', 'peers']) {
    const path = process.argv[2] + '/' + name;
    const { promise: end, resolve } = Promise.withResolvers();
    await listen({ address: { path, deleteExisting: false }, others: resolve, events: planeEvents(), name });
    net.connect(path).pause().write('GET');
    const { stream } = await end;
    taken[name] = 0;
    for (;;) {
      const taking = new Promise((done) => stream.write(Buffer.alloc(4096), done));
      if (await Promise.race([taking, new Promise((late) => setTimeout(late, 500, true))])) break;
      taken[name] += 4096;
    }
  }
  console.log(JSON.stringify(taken));
  process.exit();
`;

test('of unix sockets, only those of callers are bounded where memory is: a link carries many tunnels', {
  skip: process.platform !== 'linux' || 'Deno' in globalThis,
}, async (context) => {
  const argv = ['--input-type=module', '-e', FILLS, new URL('../listen.ts', import.meta.url).href, directory(context)];
  const { stdout } = await promisify(execFile)(process.execPath, argv, {
    cwd: import.meta.dirname,
    timeout: 60_000,
  });
  const { callers, peers } = JSON.parse(stdout) as Record<'callers' | 'peers', number>;
  // Without node:ffi, the kernel's own bound is for both.
  if (isBuiltin('node:ffi')) assert.ok(callers <= 64 * 1024, `${callers} bytes`);
  assert.ok(peers >= 128 * 1024, `${peers} bytes`);
});

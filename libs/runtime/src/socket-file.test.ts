import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdtempSync, readdirSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test, { type TestContext } from 'node:test';
import { SocketFile } from './bind.ts';

function socketPath(context: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-socket-'));
  context.after(() => rmSync(dir, { recursive: true }));
  return join(dir, 'callers.sock');
}

/** Listens on a socket's file, and says who it is. */
async function bind(file: SocketFile, name: string): Promise<net.Server> {
  // Who only asks whether someone is there goes without an answer.
  const answer = (socket: net.Socket) => void socket.on('error', () => {}).end(name);
  const server = net.createServer(answer);
  await file.bind(server);
  return server;
}

async function close(server: net.Server): Promise<void> {
  server.close();
  await once(server, 'close');
}

/** Leaves a socket's file behind, as a process does that is killed. */
function leaveBehind(path: string): void {
  const script = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync('node', ['-e', script]);
  assert.ok(existsSync(path));
}

/** The name of its own under which a process has bound its socket, and which callers do not see. */
function ownName(path: string): string {
  const [name, ...others] = readdirSync(join(path, '..')).filter((each) => each.startsWith('.'));
  assert.ok(name);
  assert.deepEqual(others, []);
  return name;
}

/** Deno keeps what a test replaces until it is given back. */
function draw(context: TestContext, random: () => number): void {
  const { mock } = context.mock.method(Math, 'random', random);
  context.after(() => mock.restore());
}

test('a name of its own that is taken is left alone, and another is bound', async (context) => {
  const path = socketPath(context);
  const drawn = [0.1, 0.1, 0.1, 0.2];
  draw(context, () => drawn.shift() ?? assert.fail('drew again'));
  const other = await bind(new SocketFile(path, true), 'other');
  const taken = ownName(path);
  const file = new SocketFile(path, true);
  const server = await bind(file, 'own');
  await file.claim();
  assert.deepEqual(readdirSync(join(path, '..')).sort(), [taken, 'callers.sock']);
  assert.equal(await text(net.connect(join(path, '..', taken))), 'other');
  assert.equal(await text(net.connect(path)), 'own');
  await Promise.all([close(other), close(server)]);
});

test('a process that finds no name of its own says so', async (context) => {
  const path = socketPath(context);
  draw(context, () => 0.1);
  const other = await bind(new SocketFile(path, true), 'other');
  await assert.rejects(bind(new SocketFile(path, true), 'own'), { code: 'EADDRINUSE' });
  await close(other);
});

test('a socket that is bound again takes its place again, but not from a process that took over meanwhile', async (context) => {
  const path = socketPath(context);
  const old = new SocketFile(path, true);
  const first = await bind(old, 'old');
  await old.claim();
  await close(first);
  const again = await bind(old, 'old again');
  old.place();
  assert.equal(await text(net.connect(path)), 'old again');
  await close(again);
  const file = new SocketFile(path, true);
  const taken = await bind(file, 'new');
  await file.claim();
  const late = await bind(old, 'late');
  old.place();
  assert.equal(await text(net.connect(path)), 'new');
  assert.match(old.lost ?? '', /belongs to another process now, .*a path of its own/);
  old.remove();
  await close(late);
  assert.equal(await text(net.connect(path)), 'new');
  assert.equal(file.lost, undefined);
  unlinkSync(path);
  assert.match(file.lost ?? '', /was deleted/);
  file.remove();
  assert.equal(file.lost, undefined);
  await close(taken);
  assert.deepEqual(readdirSync(join(path, '..')), []);
});

test('a socket that someone listens on is left to them, and one that a dead process left is taken over', async (context) => {
  const path = socketPath(context);
  leaveBehind(path);
  const keeps = new SocketFile(path, false);
  const refused = await bind(keeps, 'keeps');
  await assert.rejects(keeps.claim(), /exists already \(--delete-existing-uds-file/);
  await close(refused);
  const living = new SocketFile(path, true);
  const first = await bind(living, 'living');
  await living.claim();
  const second = new SocketFile(path, true);
  const beside = await bind(second, 'second');
  await assert.rejects(second.claim(), /^Error: unix socket .*: another process listens there/);
  assert.equal(await text(net.connect(path)), 'living');
  assert.equal(lstatSync(path).mode & 0o777, 0o660);
  // What goes takes its file away first, and the next needs not wait for its end.
  living.remove();
  await second.claim();
  assert.equal(await text(net.connect(path)), 'second');
  second.remove();
  await Promise.all([close(first), close(beside)]);
});

test('a process that cannot show its socket again may try once more', async (context) => {
  const path = socketPath(context);
  const file = new SocketFile(path, true);
  const first = await bind(file, 'first');
  await file.claim();
  await close(first);
  const second = await bind(file, 'second');
  unlinkSync(join(path, '..', ownName(path)));
  assert.throws(() => file.place(), /ENOENT/);
  await close(second);
  const third = await bind(file, 'third');
  file.place();
  assert.equal(await text(net.connect(path)), 'third');
  assert.equal(lstatSync(path).mode & 0o777, 0o660);
  file.remove();
  await close(third);
});

test('a path may have all 107 bytes', async (context) => {
  const dir = join(socketPath(context), '..');
  for (const bytes of [102, 103, 105, 106, 107]) {
    const path = join(dir, 'é'.repeat(10).padEnd(bytes - Buffer.byteLength(dir) - 1 - 10, 'x'));
    assert.equal(Buffer.byteLength(path), bytes);
    const file = new SocketFile(path, true);
    const server = await bind(file, `${bytes}`);
    await file.claim();
    assert.equal(await text(net.connect(path)), `${bytes}`);
    file.remove();
    await close(server);
  }
  assert.deepEqual(readdirSync(dir), []);
});

for (const before of ['nothing', "a dead process' socket"]) {
  test(`of many that start at once where there is ${before}, one gets the socket and keeps it`, async (context) => {
    for (let round = 0; round < 3; round++) {
      const path = socketPath(context);
      if (before !== 'nothing') leaveBehind(path);
      const files = Array.from({ length: 8 }, () => new SocketFile(path, true));
      const servers = await Promise.all(files.map((file, index) => bind(file, `${index}`)));
      const claims = await Promise.allSettled(files.map((file) => file.claim()));
      const winners = claims.flatMap(({ status }, index) => (status === 'fulfilled' ? [`${index}`] : []));
      assert.equal(winners.length, 1);
      assert.equal(await text(net.connect(path)), winners[0]);
      assert.deepEqual(files.map(({ lost }) => lost).filter(Boolean), []);
      await Promise.all(servers.map(close));
    }
  });
}

test('what is no socket is left alone', async (context) => {
  const path = socketPath(context);
  writeFileSync(path, 'precious');
  const file = new SocketFile(path, true);
  const server = await bind(file, 'none');
  await assert.rejects(file.claim(), /is not a unix socket/);
  await close(server);
  assert.ok(lstatSync(path).isFile());
});

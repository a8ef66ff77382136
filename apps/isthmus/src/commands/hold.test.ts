import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import net, { type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { HeldSocket } from './hold.ts';

const LONG_MS = 60_000;

/** A held socket, whose server is absent at first. */
async function held(waitMs = LONG_MS) {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-hold-'));
  const [path, server] = [join(directory, 'api.sock'), join(directory, 'server.sock')] as const;
  const told: string[] = [];
  const stop = await HeldSocket.open({ path, server, waitMs, tell: (line) => void told.push(line) });
  const opened: Socket[] = [];
  const dial = () => {
    const socket = net.connect({ path, allowHalfOpen: true });
    opened.push(socket);
    return socket;
  };
  const listen = async (serve: (socket: Socket) => void) => {
    const here = net.createServer({ allowHalfOpen: true }, serve).listen(server);
    await once(here, 'listening');
    return here;
  };
  return {
    ...{ path, told, stop, dial, listen },
    async [Symbol.asyncDispose]() {
      for (const socket of opened) socket.destroy();
      await stop();
      rmSync(directory, { recursive: true });
    },
  };
}

test('connections wait for a server that is absent, and get every byte both ways', async () => {
  await using socket = await held();
  const sent = randomBytes(3_000_000);
  const answers = Array.from({ length: 20 }, () => {
    const caller = socket.dial();
    caller.end(sent);
    return buffer(caller);
  });
  await until(() => socket.told.length > 0, 'the first connection to wait');
  assert.match(socket.told[0] ?? '', /no server at .*server\.sock \(ENOENT\): connections wait/);
  const server = await socket.listen((each) => void each.pipe(each));
  for (const answer of await Promise.all(answers)) assert.ok(answer.equals(sent));
  server.close();
  assert.match(socket.told.at(-1) ?? '', /answers after [\d.]+ s/);
  assert.equal(socket.told.length, 2);
});

test('no connection fails while a server is replaced by the next', async () => {
  await using socket = await held();
  const said: string[] = [];
  const heard = async (caller: Socket) => {
    const answer = await text(caller);
    // Node 24 leaves it half open. The server's end of it would stay open, too.
    caller.end();
    return answer;
  };
  for (const name of ['first', 'second', 'third']) {
    const early = heard(socket.dial());
    const server = await socket.listen((each) => each.end(name));
    said.push(await early, await heard(socket.dial()));
    await new Promise((resolve) => server.close(resolve));
  }
  assert.deepEqual(said, ['first', 'first', 'second', 'second', 'third', 'third']);
});

test('a connection that has waited long enough is closed', async () => {
  await using socket = await held(200);
  assert.equal(await text(socket.dial()), '');
  assert.match(socket.told.at(-1) ?? '', /no server at .* for 0\.2 s \(ENOENT\): a connection is closed/);
});

test('a connection that the server ends is ended, and others go on', async () => {
  await using socket = await held();
  const server = await socket.listen((each) => {
    each.on('error', () => {}).once('data', (name) => (`${name}` === 'end' ? each.destroy() : each.end('still here')));
  });
  const [ended, other] = [socket.dial(), socket.dial()];
  ended.on('error', () => {}).write('end');
  ended.once('end', () => ended.end()).resume();
  await once(ended, 'close');
  other.write('go on');
  assert.equal(await text(other), 'still here');
  server.close();
});

test('when it stops, nobody finds it, and what is open goes on to its end', async () => {
  await using socket = await held();
  const server = await socket.listen((each) => void each.pipe(each));
  const caller = socket.dial();
  caller.write('a');
  await once(caller, 'data');
  const stopped = socket.stop();
  await until(() => !existsSync(socket.path), 'the file to go');
  caller.end('b');
  assert.equal(await text(caller), 'b');
  await stopped;
  server.close();
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { RUNTIME } from './defaults.ts';
import { openFfi } from './ffi.ts';
import { boundUnixSocket, UnsentBound } from './unsent-bound.ts';

const skip = process.platform === 'linux' && !('Deno' in globalThis) && openFfi() ? false : 'no node:ffi, or no Linux';

/** A connection whose server does not read yet. */
async function connection(context: TestContext, path?: string): Promise<{ client: Socket; server: Socket }> {
  const listener = createServer({ pauseOnConnect: true });
  if (path) listener.listen(path);
  else listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const client = path ? connect(path) : connect((listener.address() as { port: number }).port, '127.0.0.1');
  const [[server]] = await Promise.all([once(listener, 'connection'), once(client, 'connect')]);
  context.after(() => {
    for (const each of [client, server]) each.destroy();
    listener.close();
  });
  return { client, server };
}

/** Writes until the kernel takes no more. @returns how much it has taken, in bytes */
async function fill(client: Socket): Promise<number> {
  const chunk = Buffer.alloc(4096);
  let taken = 0;
  let pending = 0;
  for (let idle = 0; idle < 100; await tick()) {
    if (pending > 0) {
      idle++;
      continue;
    }
    idle = 0;
    pending = chunk.length;
    client.write(chunk, () => {
      taken += pending;
      pending = 0;
    });
  }
  return taken;
}

describe('the bytes that the kernel has not sent', { skip }, () => {
  test('are few, beside as many as without a bound', async (context) => {
    const [bounded, free] = [await connection(context), await connection(context)];
    assert.equal(UnsentBound.of(bounded.client)?.bytes, RUNTIME.unsentLeastBytes);
    const [few, many] = [await fill(bounded.client), await fill(free.client)];
    assert.ok(many > few + 8 * RUNTIME.unsentLeastBytes, `${few} and ${many} bytes`);
  });

  test('are few on a unix socket of a process whose memory has a limit', async (context) => {
    const dir = await mkdtemp(join(tmpdir(), 'isthmus-'));
    context.after(() => rm(dir, { recursive: true }));
    const [bounded, free] = [await connection(context, `${dir}/1`), await connection(context, `${dir}/2`)];
    boundUnixSocket(bounded.client, 16_384);
    const [few, many] = [await fill(bounded.client), await fill(free.client)];
    assert.ok(few <= 3 * 16_384 && many > 2 * few, `${few} and ${many} bytes`);
  });

  test('may be as many as the path delivers in a while', async (context) => {
    const { client, server } = await connection(context);
    const bound = UnsentBound.of(client) as UnsentBound;
    server.resume();
    for (let sent = 0; sent < 64; sent++) await new Promise((done) => client.write(Buffer.alloc(2 ** 20), done));
    assert.ok(bound.follow());
    assert.ok(bound.bytes > RUNTIME.unsentLeastBytes, `${bound.bytes} bytes`);
  });

  test("are the kernel's own matter on a unix socket, and on a connection that has ended", async (context) => {
    const dir = await mkdtemp(join(tmpdir(), 'unsent-bound-'));
    context.after(() => rm(dir, { recursive: true }));
    const { client } = await connection(context, join(dir, 'socket'));
    assert.equal(UnsentBound.of(client), undefined);
    const ended = (await connection(context)).client;
    const bound = UnsentBound.of(ended) as UnsentBound;
    ended.destroy();
    await once(ended, 'close');
    assert.deepEqual([bound.follow(), UnsentBound.of(ended)], [false, undefined]);
  });
});

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Client, credentials } from '@grpc/grpc-js';
import { adminApi, adminDescriptors } from '@isthmus/proto/admin';
import { createChannel, createClient } from 'nice-grpc';
import { HealthDefinition } from 'nice-grpc-server-health';
import { adminClient } from '../client.ts';
import { type AdminOptions, type AdminServer, serveAdmin } from '../server.ts';
import { idleBackend } from '../testing/backend.ts';
import { RpcForward } from './forward.ts';

const backend = idleBackend();

function serve(overrides: Partial<AdminOptions> = {}): Promise<AdminServer> {
  const warn = (message: string) => assert.fail(message);
  return serveAdmin({
    host: '127.0.0.1',
    port: 0,
    backend,
    http: (_request, response) => response.end(),
    warn,
    ...overrides,
  });
}

function at({ address }: AdminServer): string {
  return `127.0.0.1:${address.port}`;
}

function healthClient(server: AdminServer) {
  const channel = createChannel(at(server));
  return { health: createClient(HealthDefinition, channel), [Symbol.dispose]: () => channel.close() };
}

/** SERVING of grpc.health.v1. */
const SERVING = 1;
const NOT_SERVING = 2;

describe("the admin RPC's health", () => {
  it('reports whether the program is ready at the time of the call', async () => {
    let ready = true;
    await using server = await serve({ ready: () => ready });
    using client = healthClient(server);
    for (const service of ['', 'isthmus.admin.v1.Admin']) {
      ready = true;
      assert.equal((await client.health.check({ service })).status, SERVING);
      ready = false;
      assert.equal((await client.health.check({ service })).status, NOT_SERVING);
    }
    await assert.rejects(client.health.check({ service: 'another' }), /NOT_FOUND/);
  });

  it('reports changes to watchers', { timeout: 60_000 }, async () => {
    let ready = true;
    await using server = await serve({ ready: () => ready });
    using client = healthClient(server);
    const seen: number[] = [];
    for await (const { status } of client.health.watch({ service: '' })) {
      seen.push(status);
      if (seen.length === 3) break;
      ready = !ready;
    }
    assert.deepEqual(seen, [SERVING, NOT_SERVING, SERVING]);
  });
});

/** Sends one request of grpc.reflection.v1, whose only field is given by number, and returns the answer as bytes. */
async function reflect(server: AdminServer, field: number, value: string): Promise<Buffer> {
  const client = new Client(at(server), credentials.createInsecure());
  try {
    const same = (bytes: Buffer) => bytes;
    const call = client.makeBidiStreamRequest('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', same, same);
    call.end(Buffer.concat([Buffer.from([(field << 3) | 2, value.length]), Buffer.from(value)]));
    const [answer] = (await once(call, 'data')) as [Buffer];
    call.resume();
    await once(call, 'end');
    return answer;
  } finally {
    client.close();
  }
}

const FILE_CONTAINING_SYMBOL = 4;
const LIST_SERVICES = 7;

describe("the admin RPC's reflection", () => {
  it('lists the services that it can describe', async () => {
    await using server = await serve();
    const answer = await reflect(server, LIST_SERVICES, '*');
    assert.deepEqual(answer.toString('latin1').match(/[a-z]+(\.\w+)+/g), ['isthmus.admin.v1.Admin']);
  });

  it('describes them with all their methods', async () => {
    await using server = await serve();
    const answer = await reflect(server, FILE_CONTAINING_SYMBOL, 'isthmus.admin.v1.Admin');
    // The set has one file: a tag, a length of two bytes, and then exactly what reflection returns.
    assert.ok(answer.includes(Buffer.from(adminDescriptors().subarray(3))));
    for (const { name } of Object.values(adminApi.AdminDefinition.methods)) assert.ok(answer.includes(name), name);
  });
});

describe("the admin RPC's socket", () => {
  let directory: string;
  const before = process.env.TMPDIR;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'isth-'));
    process.env.TMPDIR = directory;
  });

  afterEach(async () => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    await rm(directory, { recursive: true });
  });

  it("is in a directory that only the program's user may enter, from the first call until the server closes", async () => {
    await using server = await serve();
    assert.deepEqual(await readdir(directory), []);
    using client = adminClient(at(server));
    await client.admin.listTunnels({});
    const [name = '', ...more] = await readdir(directory);
    assert.deepEqual(more, []);
    assert.equal((await stat(join(directory, name))).mode & 0o777, 0o700);
    await server.close();
    assert.deepEqual(await readdir(directory), []);
  });

  it('is shared by all connections, including those that arrive while it starts', async () => {
    await using server = await serve();
    const clients = Array.from({ length: 20 }, () => createChannel(at(server), undefined, OWN_CONNECTION));
    await Promise.all(clients.map((channel) => createClient(adminApi.AdminDefinition, channel).listSessions({})));
    assert.equal((await readdir(directory)).length, 1);
    for (const channel of clients) channel.close();
  });

  it('is removed if the port closes while the server starts', async () => {
    const forward = new RpcForward(backend, { ready: () => true, warn: (message) => assert.fail(message) });
    const socket = new Socket();
    socket.on('error', () => {});
    const ended = new Promise((resolve) => socket.once('close', resolve));
    forward.take(socket);
    await forward.close();
    await ended;
    assert.deepEqual(await readdir(directory), []);
  });

  it('moves to a shorter path if its own would be too long', async () => {
    process.env.TMPDIR = join(directory, 'x'.repeat(100));
    await using server = await serve();
    using client = adminClient(at(server));
    assert.deepEqual(await client.admin.listTunnels({}), { tunnels: [] });
  });

  it('is retried by the next call if it could not be created', async () => {
    const warnings: string[] = [];
    await using server = await serve({ warn: (message) => warnings.push(message) });
    process.env.TMPDIR = join(directory, 'none');
    const first = createChannel(at(server), undefined, OWN_CONNECTION);
    await assert.rejects(createClient(adminApi.AdminDefinition, first).listTunnels({}), /UNAVAILABLE/);
    first.close();
    assert.match(warnings.join('\n'), /^the admin RPC cannot start: ENOENT.*TMPDIR/);
    process.env.TMPDIR = directory;
    using second = adminClient(at(server));
    assert.deepEqual(await second.admin.listTunnels({}), { tunnels: [] });
  });

  it('of a killed program does not disturb the next program', async () => {
    await using program = await serveElsewhere();
    using old = adminClient(`127.0.0.1:${program.port}`);
    await old.admin.listTunnels({});
    await program.kill();
    const left = await readdir(directory);
    assert.equal(left.length, 1);
    await using server = await serve();
    using client = adminClient(at(server));
    assert.deepEqual(await client.admin.listTunnels({}), { tunnels: [] });
    await server.close();
    assert.deepEqual(await readdir(directory), left);
  });

  it('of a killed program is removed after a while, when the next program starts', async () => {
    await using running = await serve();
    using neighbour = adminClient(at(running));
    await neighbour.admin.listTunnels({});
    await using program = await serveElsewhere();
    using old = adminClient(`127.0.0.1:${program.port}`);
    await old.admin.listTunnels({});
    await program.kill();
    const hourAgo = Date.now() / 1000 - 3600;
    for (const name of await readdir(directory)) await utimes(join(directory, name), hourAgo, hourAgo);
    await using server = await serve();
    using client = adminClient(at(server));
    await client.admin.listTunnels({});
    assert.equal((await readdir(directory)).length, 2);
    assert.deepEqual(await neighbour.admin.listTunnels({}), { tunnels: [] });
  });
});

/** By default, clients of one process share connections. */
const OWN_CONNECTION = { 'grpc.use_local_subchannel_pool': 1 };

/** Starts an admin port in its own process. */
async function serveElsewhere() {
  const module = new URL(`../server.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url);
  const code = `
    import { serveAdmin } from '${module}';
    const backend = {
      ...{ sessions: () => [], tunnels: () => new Set() },
      drain: async () => ({ sessions: 0, tunnels: 0 }),
      plan: () => ({ sessions: 0, moves: [] }),
    };
    const { address } = await serveAdmin({ host: '127.0.0.1', port: 0, backend, http() {}, warn() {} });
    console.log(address.port);
  `;
  const args = 'Deno' in globalThis ? ['eval', code] : ['--input-type=module', '--eval', code];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const [line] = (await Promise.race([once(child.stdout, 'data'), exited])) as [Buffer];
  const kill = async () => {
    child.kill('SIGKILL');
    await exited;
  };
  return { port: Number(line), kill, [Symbol.asyncDispose]: kill };
}

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net, { type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import tls from 'node:tls';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { names, systemClock } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import { type DialError, type Prohibited, planeEvents, type TunnelInfo, type TunnelOutcome } from '@isthmus/tunnel';
import { DEFAULT_LIMITS } from '@isthmus/tunnel/limits';
import { readBudget } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { type Listener, listen } from '../listen.ts';
import { readersOf } from '../socket-end.ts';
import { cleanups } from '../testing/cleanups.ts';
import { named, recordsOf } from '../tls/testing/hellos.ts';
import { ApiServerAddresses } from './addresses.ts';
import { type ApiServer, ApiServers, type ApiServersOptions } from './api-servers.ts';

const DAY = 86_400_000;
const NAME = 'api.acme.plane.example';

const authority = await CertificateAuthority.create('cluster', DAY);
const api = await authority.issue({ commonName: 'api', validMs: DAY, hosts: [{ type: 'dns', value: NAME }] });
const hub = await authority.issue({ commonName: 'hub', validMs: DAY, hosts: [...LOOPBACK] });
const dir = mkdtempSync(join(tmpdir(), 'api-'));
process.once('exit', () => rmSync(dir, { recursive: true }));
const files = { cert: join(dir, 'hub.crt'), key: join(dir, 'hub.key') };
writeFileSync(files.cert, hub.cert);
writeFileSync(files.key, hub.key);

async function listening(server: net.Server, { host = '127.0.0.1', port = 0 } = {}): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  cleanups.push(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A TCP server that gives each connection to `serve`, and resets all when the test ends. */
async function tcp(serve: (socket: Socket) => void, at = { host: '127.0.0.1', port: 0 }): Promise<string> {
  const open = new Set<Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket.on('error', () => {}));
    socket.on('close', () => open.delete(socket));
    serve(socket);
  });
  cleanups.push(() => {
    for (const socket of open) socket.destroy();
  });
  return `${at.host}:${await listening(server, at)}`;
}

/** An API server: answers over TLS with what it gets, and its own name. */
async function apiServer(name = 'api'): Promise<string> {
  const server = tls.createServer({ cert: api.cert, key: api.key, allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.write(`${name} hears `);
    socket.pipe(socket);
  });
  return `127.0.0.1:${await listening(server)}`;
}

function endsToo(socket: Socket): void {
  socket.resume().on('end', () => socket.end());
}

/** An address where nothing listens: none of the ports that connections begin at, which may connect to themselves. */
async function dead(): Promise<string> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = net.createServer();
    const bound = once(server.listen(port, '127.0.0.1'), 'listening').then(
      () => true,
      () => false,
    );
    if (!(await bound)) continue;
    server.close();
    await once(server, 'close');
    return `127.0.0.1:${port}`;
  }
}

interface Rig {
  readonly port: number;
  readonly servers: ApiServers;
  readonly tunnels: TunnelInfo[];
  readonly outcomes: TunnelOutcome[];
  readonly failures: DialError[];
  readonly refusals: string[];
  readonly faults: Error[];
  readonly listener: Listener;
}

/** A hub's port for agents, that passes on to these addresses. */
async function rig(
  addresses: readonly string[] | ((port: number) => readonly string[]),
  {
    own = true,
    ...options
  }: Partial<ApiServersOptions> & { own?: boolean } & Partial<Pick<ApiServer, 'proxyProtocol'>> = {},
): Promise<Rig> {
  const events = planeEvents();
  const [tunnels, outcomes, failures]: [TunnelInfo[], TunnelOutcome[], DialError[]] = [[], [], []];
  const [refusals, faults]: [string[], Error[]] = [[], []];
  events.on('tunnel:open', (tunnel) => void tunnels.push(tunnel));
  events.on('tunnel:close', (_tunnel, outcome) => void outcomes.push(outcome));
  events.on('api-server:failure', (_dial, error) => void failures.push(error));
  events.on('refused', (_where, _remote, error) => void refusals.push(error.message));
  events.on('fault', (_where, _remote, error) => void faults.push(error));
  let list: readonly string[] = [];
  const servers = new ApiServers({
    hubId: 'hub-1',
    any: () => true,
    find: (name) =>
      name.toLowerCase().replace(/\.$/, '') === NAME
        ? { tenant: 'acme', addresses: list, proxyProtocol: options.proxyProtocol ?? false }
        : undefined,
    ofTenant: (tenant) =>
      tenant === 'acme' ? { tenant, addresses: list, proxyProtocol: options.proxyProtocol ?? false } : undefined,
    prohibited: () => undefined,
    events,
    ...options,
  });
  const listener = await listen({
    address: { host: '127.0.0.1', port: 0 },
    ...(own && { tls: files }),
    byName: servers.byName(),
    others: ({ stream }, first) => void stream.end(`the hub hears ${first}`),
    name: 'agents',
    events,
  });
  const port = Number(listener.address.split(':').at(-1));
  list = typeof addresses === 'function' ? addresses(port) : addresses;
  servers.follow(list);
  cleanups.push(async () => {
    servers.close();
    await listener.close();
    assert.deepEqual(faults, []);
  });
  return { port, servers, tunnels, outcomes, failures, refusals, faults, listener };
}

function client(port: number, servername = NAME): tls.TLSSocket {
  const socket = tls.connect({
    host: '127.0.0.1',
    port,
    servername,
    ca: authority.cert,
    checkServerIdentity: () => undefined,
  });
  cleanups.push(() => void socket.destroy());
  return socket.on('error', () => {});
}

/** What is answered to `hello`, and who showed which certificate. */
async function asked(port: number, servername = NAME): Promise<{ readonly shown: string; readonly answer: string }> {
  const socket = client(port, servername);
  await once(socket, 'secureConnect');
  const shown = socket.getPeerX509Certificate()?.subject.replace('CN=', '') ?? '';
  socket.end('hello');
  return { shown, answer: await text(socket) };
}

/** The end of a plain connection: the error's code, or `end`. */
async function endOf(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    socket.on('end', () => resolve('end')).resume();
  });
}

function plain(port: number): Socket {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  cleanups.push(() => void socket.destroy());
  return socket.on('error', () => {});
}

const HELLO = recordsOf(named(NAME));

/** Another one. */
function hello(number: number): Buffer {
  return recordsOf(named(NAME, Buffer.alloc(32, 100 + number)));
}

/** What the client of another hello gets: a byte, `x`, or its connection's end. */
function heardBy(port: number, number: number): Promise<string> {
  const socket = plain(port);
  const answered = once(socket, 'data').then(() => 'x', String);
  socket.write(hello(number));
  return Promise.race([answered, endOf(socket)]);
}

describe('A client that names an API server', () => {
  test('is passed on to it, and others reach the port itself', async () => {
    const { port, tunnels, outcomes } = await rig([await apiServer()]);
    assert.deepEqual(await asked(port), { shown: 'api', answer: 'api hears hello' });
    assert.deepEqual(await asked(port, NAME.toUpperCase()), { shown: 'api', answer: 'api hears hello' });
    assert.deepEqual(await asked(port, 'hub.plane.example'), { shown: 'hub', answer: 'the hub hears hello' });
    assert.deepEqual(await asked(port, ''), { shown: 'hub', answer: 'the hub hears hello' });
    await until(() => outcomes.length === 2, { what: 'the end of both' });
    const { role, dial, agentId, hubId } = tunnels[0] as TunnelInfo;
    assert.deepEqual([role, dial.tenant, agentId, hubId], ['api-server', 'acme', 'direct', 'hub-1']);
    assert.equal(dial.caller?.serverName, NAME);
    assert.match(dial.caller?.remote ?? '', /^127\.0\.0\.1:\d+$/);
  });

  test('is passed on by a port of its own, where others get an alert', async () => {
    const { port, refusals } = await rig([await apiServer()], { own: false });
    assert.deepEqual(await asked(port), { shown: 'api', answer: 'api hears hello' });
    assert.deepEqual(refusals, []);
  });

  test('sends its hello in pieces, and more behind it, and all of it arrives as it was', async () => {
    const heard: Promise<Buffer>[] = [];
    const { port } = await rig([await tcp((socket) => void heard.push(buffer(socket).finally(() => socket.end())))]);
    for (const size of [1, 7, 500]) {
      const sent = Buffer.concat([HELLO, Buffer.alloc(100_000, size)]);
      const socket = plain(port);
      for (let at = 0; at < HELLO.length; at += size) {
        socket.write(sent.subarray(at, Math.min(at + size, HELLO.length)));
        await new Promise((resolve) => setImmediate(resolve));
      }
      socket.end(sent.subarray(HELLO.length));
      assert.equal(await endOf(socket), 'end');
      assert.equal(Buffer.compare((await heard.at(-1)) as Buffer, sent), 0, `${size}`);
    }
  });

  test('is asked to try again by its API server (HelloRetryRequest), and does', async () => {
    const server = tls.createServer({ cert: api.cert, key: api.key, ecdhCurve: 'P-521' }, (socket) => {
      socket.on('error', () => {}).end('after two hellos');
    });
    const { port, tunnels } = await rig([`127.0.0.1:${await listening(server)}`]);
    // It has a key for the first group alone.
    const asking = { host: '127.0.0.1', port, servername: NAME, ca: authority.cert, ecdhCurve: 'X25519:P-521' };
    const socket = tls.connect(asking).on('error', () => {});
    cleanups.push(() => void socket.destroy());
    await once(socket, 'secureConnect');
    assert.equal(socket.getProtocol(), 'TLSv1.3');
    assert.equal(await text(socket), 'after two hellos');
    assert.equal(tunnels.length, 1);
  });

  test('that names another server in its second hello stays with the first: only that one judges the second', async () => {
    const heard: Buffer[] = [];
    const retry = Buffer.from('try again');
    const first = await tcp((socket) => {
      socket.once('data', () => socket.write(retry));
      socket.on('data', (chunk) => heard.push(chunk));
    });
    const other = await tcp(() => assert.fail('the second name chooses nothing'));
    const find = (name: string) => ({ tenant: name, addresses: [name === NAME ? first : other], proxyProtocol: false });
    const { port, tunnels } = await rig([first, other], { find });
    const socket = plain(port);
    socket.write(HELLO);
    const [answer] = await once(socket, 'data');
    assert.deepEqual(answer, retry);
    const second = recordsOf(named('api.globex.plane.example', Buffer.alloc(32, 1)));
    socket.write(second);
    await until(() => Buffer.concat(heard).length === HELLO.length + second.length, { what: 'the second hello' });
    assert.ok(Buffer.concat(heard).equals(Buffer.concat([HELLO, second])));
    assert.deepEqual(
      tunnels.map(({ dial }) => dial.tenant),
      [NAME],
    );
  });

  test('keeps its half open: each side ends when it wants', async () => {
    const upstream = await tcp((socket) => {
      socket.on('data', () => {}).on('end', () => socket.end('answer behind the end'));
    });
    const { port, outcomes } = await rig([upstream]);
    const socket = plain(port);
    socket.end(HELLO);
    assert.equal(await text(socket), 'answer behind the end');
    await until(() => outcomes.length === 1, { what: 'the end' });
    assert.equal(outcomes[0]?.how, 'closed');
    const heard: Buffer[] = [];
    const other = await rig([await tcp((far) => far.end('goodbye').on('data', (chunk) => heard.push(chunk)))]);
    const late = plain(other.port);
    late.write(HELLO);
    const goodbye: Buffer[] = [];
    late.on('data', (chunk) => goodbye.push(chunk));
    assert.equal(await endOf(late), 'end');
    assert.equal(Buffer.concat(goodbye).toString(), 'goodbye');
    late.end('and this');
    await until(() => Buffer.concat(heard).includes('and this'), { what: 'what was sent behind the end' });
  });

  test('sees a reset where its API server resets, and the API server where the client does', async () => {
    const { port, outcomes } = await rig([await tcp((socket) => socket.once('data', () => socket.resetAndDestroy()))]);
    const socket = plain(port);
    socket.write(HELLO);
    assert.equal(await endOf(socket), 'ECONNRESET');
    await until(() => outcomes.length === 1, { what: 'the end' });
    assert.deepEqual([outcomes[0]?.how, outcomes[0]?.by], ['failed', 'destination']);
    const ends: Promise<string>[] = [];
    const other = await rig([await tcp((far) => ends.push(endOf(far)))]);
    const leaving = plain(other.port);
    leaving.write(HELLO);
    await until(() => other.tunnels.length === 1, { what: 'a tunnel' });
    leaving.resetAndDestroy();
    assert.equal(await ends[0], 'ECONNRESET');
  });

  test('is read in turns of its tenant, and so is its API server', async (t) => {
    const count = t.mock.method(readBudget, 'count');
    const { port, outcomes } = await rig([await tcp((far) => far.pipe(far))]);
    const socket = plain(port);
    socket.end(Buffer.concat([HELLO, Buffer.alloc(1024 * 1024)]));
    assert.equal((await buffer(socket)).length, HELLO.length + 1024 * 1024);
    await until(() => outcomes.length === 1, { what: 'the end' });
    const reads = new Set(count.mock.calls.map(({ arguments: [own] }) => own));
    assert.equal(reads.size, 2, 'both sockets');
    for (const { readers } of reads) assert.equal(readers, readersOf('acme'));
  });

  test('waits for an API server that is silent in its handshake as long as it wants', async () => {
    const { port, tunnels, outcomes } = await rig([await tcp(() => {})]);
    const socket = plain(port);
    socket.write(HELLO);
    await until(() => tunnels.length === 1, { what: 'a tunnel' });
    socket.resetAndDestroy();
    await until(() => outcomes.length === 1, { what: 'the end that the client made' });
    assert.equal(outcomes[0]?.by, 'caller');
  });

  test('stalls its API server when it does not read, and not this process', async () => {
    let sent = 0;
    const upstream = await tcp((socket) => {
      const fill = () => {
        while (socket.write(Buffer.alloc(65_536))) sent += 65_536;
      };
      socket.on('drain', fill).on('data', () => {});
      fill();
    });
    const { port, tunnels } = await rig([upstream]);
    const socket = plain(port).pause();
    socket.write(HELLO);
    await until(() => tunnels.length === 1, { what: 'a tunnel' });
    let before = -1;
    await until(
      () => {
        const same = before === sent && sent > 0;
        before = sent;
        return same;
      },
      { what: 'the stall', every: 200 },
    );
    assert.ok((tunnels[0]?.queued ?? 0) <= 2 * 65_536 + 65_536, `${tunnels[0]?.queued} bytes wait here`);
    socket.destroy();
  });
});

describe('Addresses', () => {
  test('of those that listen, the one with the fewest connections is next', async () => {
    const counts = [0, 0, 0];
    const all = await Promise.all(counts.map((_, index) => tcp(() => void counts[index]!++)));
    const { port, tunnels } = await rig(all);
    for (let opened = 1; opened <= 9; opened++) {
      plain(port).write(hello(opened));
      await until(() => tunnels.length === opened, { what: 'a tunnel' });
    }
    await until(() => counts.join() === '3,3,3', { what: `three each, not ${counts.join()}` });
  });

  test('that are dead cost no client, and are used again once they answer', async () => {
    using _ = changed(TRANSPORT, { apiServerProbeMs: 5 });
    const gone = await dead();
    const { port, tunnels, failures } = await rig([
      gone,
      await apiServer('one'),
      gone.replace('127.0.0.1', '127.0.0.2'),
    ]);
    for (let round = 0; round < 10; round++) assert.equal((await asked(port)).answer, 'one hears hello');
    assert.deepEqual(failures, []);
    const before = tunnels.length;
    const back = tls.createServer({ cert: api.cert, key: api.key }, (socket) => socket.end('back'));
    back.listen(Number(gone.split(':').at(-1)), '127.0.0.1');
    await once(back, 'listening');
    cleanups.push(() => void back.close());
    // One that is open elsewhere makes it the one with the fewest.
    const held = client(port).resume();
    await once(held, 'secureConnect');
    await until(async () => (await asked(port)).answer === 'back', { what: 'the address that came back' });
    assert.ok(tunnels.length > before);
  });

  test('that accept, and then hang up without a byte, cost one client and come last, though they have the fewest', async () => {
    for (const hangUp of ['destroy', 'resetAndDestroy'] as const) {
      const bad = await tcp((socket) => socket.once('data', () => socket[hangUp]()));
      const { port } = await rig([bad, await tcp((socket) => socket.once('data', () => socket.write('x')))]);
      const heard: string[] = [];
      for (let number = 0; number < 20; number++) heard.push(await heardBy(port, number));
      const lost = heard.filter((each) => each !== 'x').length;
      assert.ok(lost <= 1, `${lost} of 20 after ${hangUp}: ${heard}`);
    }
  });

  test('that all refuse show their client a reset, and say why', async () => {
    const gone = await dead();
    const { port, failures, servers } = await rig([gone]);
    const socket = plain(port);
    socket.write(HELLO);
    assert.equal(await endOf(socket), 'ECONNRESET');
    assert.deepEqual(
      failures.map(({ code, message }) => [code, message]),
      [['connection_refused', `dial tcp ${gone}: connect: connection refused`]],
    );
    await until(() => servers.open('acme') === 0, { what: 'nothing counted' });
  });

  test('that nobody resolves are named, and others used', async () => {
    const { port, servers } = await rig(['nowhere.invalid:6443', await apiServer()]);
    assert.equal((await asked(port)).answer, 'api hears hello');
    await until(() => servers.addresses.fault('nowhere.invalid:6443') !== undefined, { what: 'the fault' });
    assert.match(servers.addresses.fault('nowhere.invalid:6443') ?? '', /^nowhere\.invalid cannot be resolved: /);
  });

  test('are waited for while they are resolved for the first time', async () => {
    const at = (await apiServer()).replace('127.0.0.1', 'localhost');
    const addresses = new ApiServerAddresses({ prohibited: () => undefined, events: planeEvents() });
    cleanups.push(() => addresses.close());
    addresses.follow([at]);
    const address = await new Promise((resolve, reject) => {
      addresses.connect([at], {
        reached: ({ socket, address }) => {
          socket.destroy();
          resolve(address);
        },
        failed: reject,
      });
    });
    assert.equal(address, at);
  });

  test('are resolved, and what is denied of them is not dialled', async () => {
    const prohibited: Prohibited = (address) => (address === '::1' ? 'link-local' : undefined);
    const port = (await apiServer()).split(':').at(-1);
    const one = await rig([`localhost:${port}`], { prohibited });
    assert.equal((await asked(one.port)).answer, 'api hears hello');
    const none = await rig([`localhost:${port}`], { prohibited: () => 'metadata' });
    const socket = plain(none.port);
    socket.write(HELLO);
    assert.equal(await endOf(socket), 'ECONNRESET');
    assert.deepEqual(
      none.failures.map(({ code }) => code),
      ['destination_ip_prohibited'],
    );
    const at = `localhost:${port}`;
    await until(() => none.servers.addresses.fault(at) === `${at} is denied: metadata`, { what: 'the reason' });
  });

  describe('that are several of one name', () => {
    const NAMED = 'api.internal';

    /** Resolves that name to what the function says then. */
    function resolving(found: () => readonly string[]): Disposable {
      return changed(names, {
        resolve: (_name, done) => {
          setImmediate(() => {
            const addresses = found().map((address) => ({ address, family: 4 }));
            done(null, addresses);
          });
          return () => {};
        },
      });
    }

    test('share its connections', async () => {
      const counts = [0, 0];
      const first = await tcp(() => void counts[0]!++);
      const port = Number(first.split(':').at(-1));
      await tcp(() => void counts[1]!++, { host: '127.0.0.2', port });
      using _ = resolving(() => ['127.0.0.1', '127.0.0.2']);
      const hub = await rig([`${NAMED}:${port}`]);
      for (let opened = 1; opened <= 6; opened++) {
        plain(hub.port).write(hello(opened));
        await until(() => hub.tunnels.length === opened, { what: 'a tunnel' });
      }
      await until(() => counts.join() === '3,3', { what: () => `three each, not ${counts.join()}` });
    });

    test('fail each by itself', async () => {
      const bad = await tcp((socket) => socket.once('data', () => socket.destroy()));
      const port = Number(bad.split(':').at(-1));
      await tcp((socket) => socket.once('data', () => socket.write('x')), { host: '127.0.0.2', port });
      using _ = resolving(() => ['127.0.0.1', '127.0.0.2']);
      const hub = await rig([`${NAMED}:${port}`]);
      const heard: string[] = [];
      for (let number = 0; number < 10; number++) heard.push(await heardBy(hub.port, number));
      const lost = heard.filter((each) => each !== 'x').length;
      assert.ok(lost <= 1, `${lost} of 10: ${heard}`);
    });

    test('are looked up before the first client after a rest is sent to what the name was', async () => {
      const gone = await dead();
      const port = Number(gone.split(':').at(-1));
      await tcp((socket) => socket.once('data', () => socket.write('x')), { host: '127.0.0.2', port });
      let host = '127.0.0.1';
      using _ = resolving(() => [host]);
      using _rest = changed(TRANSPORT, { apiServerNameMs: 0 });
      const hub = await rig([`${NAMED}:${port}`]);
      await new Promise((resolve) => setTimeout(resolve, 20));
      host = '127.0.0.2';
      const heard = await Promise.all([1, 2, 3].map((number) => heardBy(hub.port, number)));
      assert.deepEqual(heard, ['x', 'x', 'x']);
    });
  });

  test('of an object are judged as such, also if operators name the same, and before they are followed', async () => {
    const at = (await apiServer()).replace('127.0.0.1', 'localhost');
    const { servers } = await rig([at], {
      prohibited: (_host, _port, ofObject) => (ofObject ? 'loopback' : undefined),
    });
    const reach = (ofObject: boolean) =>
      new Promise((resolve) => {
        const reached = ({ socket }: { socket: net.Socket }) => resolve(socket.destroy() && 'reached');
        servers.addresses.connect([at], { reached, failed: ({ message }) => resolve(message) }, ofObject);
      });
    const both = async () => [await reach(false), await reach(true)];
    assert.deepEqual(await both(), ['reached', `${at} is denied: loopback`]);
    servers.follow([at], [at]);
    assert.deepEqual(await both(), ['reached', `${at} is denied: loopback`]);
  });

  test('that lead back to the plane are found by the hello that comes back', async () => {
    const { port, failures, servers, outcomes } = await rig((own) => [`127.0.0.1:${own}`]);
    const socket = plain(port);
    socket.write(HELLO);
    assert.equal(await endOf(socket), 'ECONNRESET');
    assert.equal(failures.length, 1);
    assert.match(failures[0]?.message ?? '', /^the connection came back: 127\.0\.0\.1:\d+ is the plane itself/);
    assert.equal(servers.addresses.fault(`127.0.0.1:${port}`), 'a connection there came back to the plane');
    await until(() => outcomes.length === 1 && servers.open('acme') === 0, { what: 'the end of both' });
    // That something listens there is no news.
    const { promise: stands, resolve: reached, reject: failed } = Promise.withResolvers<{ socket: Socket }>();
    servers.addresses.connect([`127.0.0.1:${port}`], { reached, failed });
    (await stands).socket.destroy();
    assert.equal(servers.addresses.fault(`127.0.0.1:${port}`), 'a connection there came back to the plane');
  });

  test('get the header of the PROXY protocol where it is asked for', async () => {
    const heard: Buffer[] = [];
    const upstream = await tcp((socket) => socket.on('data', (chunk) => heard.push(chunk)));
    const { port } = await rig([upstream], { proxyProtocol: true });
    const socket = plain(port);
    socket.write(HELLO);
    await until(() => Buffer.concat(heard).length > HELLO.length, { what: 'the hello' });
    const bytes = Buffer.concat(heard);
    const [source, destination] = [socket.localPort ?? 0, port].map((each) => each.toString(16).padStart(4, '0'));
    const header = `0d0a0d0a000d0a515549540a2111000c7f0000017f000001${source}${destination}`;
    assert.equal(bytes.toString('hex'), header + HELLO.toString('hex'));
  });
});

describe('Limits', () => {
  const limited = (values: Partial<typeof DEFAULT_LIMITS>) => ({ limits: () => ({ ...DEFAULT_LIMITS, ...values }) });

  test('refuse connections beyond those that a tenant may have', async () => {
    const { port, tunnels, failures, servers } = await rig([await tcp(endsToo)], limited({ apiServerConnections: 2 }));
    const held = [plain(port), plain(port)];
    for (const [index, socket] of held.entries()) socket.write(hello(index));
    await until(() => tunnels.length === 2, { what: 'two tunnels' });
    const third = plain(port);
    third.write(HELLO);
    assert.equal(await endOf(third), 'ECONNRESET');
    assert.deepEqual(
      failures.map(({ code, message }) => [code, message]),
      [['connection_limit_reached', 'tenant acme has reached its limit apiServerConnections of 2']],
    );
    for (const socket of held) socket.destroy();
    await until(() => servers.open('acme') === 0, { what: 'room' });
    plain(port).write(HELLO);
    await until(() => tunnels.length === 3, { what: 'another tunnel' });
  });

  test('refuse those that come faster', async () => {
    const upstream = await tcp(() => {});
    using _ = changed(systemClock, { now: () => 0 });
    const { port, failures, tunnels } = await rig([upstream], limited({ apiServerConnectionsPerSecond: 1 }));
    for (let index = 0; index < 20; index++) plain(port).write(hello(index));
    await until(() => failures.length + tunnels.length === 20, { what: 'tunnels and refusals' });
    assert.equal(tunnels.length, 2, 'a little more at once');
    assert.match(failures[0]?.message ?? '', /apiServerConnectionsPerSecond of 1$/);
  });

  test('of bytes are shared by the connections of a tenant in turns, and slow no other tenant', async () => {
    const sent = new Map<string, number>();
    const upstream = await tcp((socket) => {
      socket.on('data', () => {});
      const fill = () => {
        while (socket.write(Buffer.alloc(16_384)));
      };
      socket.on('drain', fill);
      fill();
    });
    const find = (name: string) => ({ tenant: name.split('.')[1] ?? '', addresses: [upstream], proxyProtocol: false });
    const limits = (tenant: string) =>
      tenant === 'acme' ? { ...DEFAULT_LIMITS, bytesPerSecond: 4_000_000 } : DEFAULT_LIMITS;
    const { port } = await rig([upstream], { find, limits });
    const open = (index: number, name: string) => {
      const key = `${name} ${index}`;
      sent.set(key, 0);
      const socket = plain(port);
      socket.on('data', (chunk: Buffer) => sent.set(key, (sent.get(key) ?? 0) + chunk.length));
      socket.write(recordsOf(named(name, Buffer.alloc(32, index))));
      return () => sent.get(key) ?? 0;
    };
    const ofAcme = [1, 2, 3, 4].map((index) => open(index, NAME));
    const ofGlobex = open(9, 'api.globex.plane.example');
    const total = () => ofAcme.reduce((sum, each) => sum + each(), 0);
    await until(() => total() >= 6_000_000, { what: () => `bytes of acme, of which there are ${total()}` });
    const shares = ofAcme.map((each) => each() / total());
    assert.ok(Math.min(...shares) > 0.1, `each has a share, and not ${shares}`);
    assert.ok(ofGlobex() > total(), `globex, without a limit, is not slowed: ${ofGlobex()} beside ${total()}`);
  });

  test('refuse further ones while their bytes wait for slow readers', async () => {
    const upstream = await tcp((socket) => socket.on('data', () => {}).end(Buffer.alloc(10_000_000)));
    const { port, tunnels, failures } = await rig([upstream], limited({ bytesQueued: 1 }));
    plain(port).pause().write(HELLO);
    await until(() => (tunnels[0]?.queued ?? 0) > 0, { what: 'bytes that wait' });
    const other = plain(port);
    other.write(hello(1));
    assert.equal(await endOf(other), 'ECONNRESET');
    assert.match(failures[0]?.message ?? '', /bytesQueued of 1$/);
  });
});

describe('A stranger', () => {
  test('with half a hello waits no longer than others, and then meets the port itself', async () => {
    using _ = changed(TRANSPORT, { helloMs: 20 });
    const { port, tunnels } = await rig([await apiServer()], { own: false });
    const half = HELLO.subarray(0, 50);
    const leaving = plain(port);
    leaving.end(half);
    assert.equal(await endOf(leaving), 'end');
    const slow = plain(port);
    slow.write(half);
    assert.equal(await text(slow), `the hub hears ${half}`);
    assert.equal(tunnels.length, 0);
  });

  test('whose hello names two servers, or has a NUL, or 64 KiB of extensions, meets the port itself', async () => {
    const { port, tunnels } = await rig([await apiServer()]);
    const { extension, helloOf, serverNames } = await import('../tls/testing/hellos.ts');
    const hellos = [
      helloOf([extension(0, serverNames(NAME, 'b.example'))]),
      helloOf([extension(0, serverNames(NAME)), extension(0, serverNames(NAME))]),
      named(`${NAME}\0.b.example`),
      helloOf([extension(0, serverNames(NAME)), extension(21, Buffer.alloc(65_000))]),
    ];
    for (const hello of hellos) {
      const socket = plain(port);
      socket.write(recordsOf(hello));
      await endOf(socket);
    }
    const http = plain(port);
    http.write('GET / HTTP/1.1\r\n\r\n');
    // Node says so in HTTP, Deno by an alert.
    assert.notEqual(await text(http), '');
    assert.equal(tunnels.length, 0);
  });

  test('that connects and leaves is no error', async () => {
    const { port, refusals, failures } = await rig([await apiServer()]);
    for (let round = 0; round < 20; round++) {
      const socket = plain(port);
      await once(socket, 'connect');
      if (round % 2) socket.resetAndDestroy();
      else socket.end();
    }
    assert.equal((await asked(port)).answer, 'api hears hello');
    assert.deepEqual([refusals, failures], [[], []]);
  });
});

test('When a tenant has no API server any more, what runs there is cut, and what is on its way', async () => {
  let has = true;
  const upstream = await tcp(() => {});
  const server = { tenant: 'acme', addresses: [upstream], proxyProtocol: false };
  const { port, tunnels, outcomes, servers } = await rig([upstream], { ofTenant: () => (has ? server : undefined) });
  const [one, other] = [plain(port), plain(port)];
  one.write(HELLO);
  await until(() => tunnels.length === 1, { what: 'a tunnel' });
  servers.follow([upstream]);
  other.write(hello(1));
  await until(() => servers.open('acme') === 2, { what: 'the other client' });
  const ends = Promise.all([one, other].map(endOf));
  has = false;
  servers.follow([]);
  assert.deepEqual(await ends, ['ECONNRESET', 'ECONNRESET']);
  await until(() => servers.open('acme') === 0, { what: 'the end' });
  assert.deepEqual(outcomes.map(({ how }) => how).slice(0, 1), ['cut']);
});

test('When the hub stops, what still runs is cut', async () => {
  const { port, tunnels, outcomes, servers } = await rig([await tcp(() => {})]);
  const socket = plain(port);
  socket.write(HELLO);
  await until(() => tunnels.length === 1, { what: 'a tunnel' });
  servers.close();
  assert.equal(await endOf(socket), 'ECONNRESET');
  await until(() => outcomes.length === 1, { what: 'the end' });
  assert.equal(outcomes[0]?.how, 'cut');
});

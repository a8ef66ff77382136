import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage, Server } from 'node:http';
import { connect, Socket } from 'node:net';
import { test } from 'node:test';
import { SERVICE } from './defaults.ts';
import {
  AGENT_UNREADY,
  type Check,
  countSessions,
  type HealthOptions,
  refuseBadRequests,
  registryCheck,
  SERVER_UNREADY,
  serveHealth,
  sessionsCheck,
} from './health.ts';

const good: Check = { name: 'ping', ok: true, detail: '' };
const known: Check = { name: 'registry', ok: true, detail: 'answered 0.4 s ago' };
const bad: Check = { name: 'server-connected', ok: false, detail: 'no servers connected' };
const metrics = async () => ({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' });

function health(options: Partial<HealthOptions> = {}) {
  return serveHealth({ host: '127.0.0.1', port: 0, checks: () => [good], unready: AGENT_UNREADY, metrics, ...options });
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

async function ask(port: number, path: string, agent?: Agent): Promise<Answer> {
  const request = get({ host: '127.0.0.1', port, path, agent: agent ?? false });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let body = '';
  response.setEncoding('utf8').on('data', (chunk) => {
    body += chunk;
  });
  await once(response, 'end');
  return { status: response.statusCode, headers: response.headers, body };
}

/** Sends raw bytes and returns everything that comes back. */
async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.write(bytes);
  // Not `once`: a server that has not read everything it was sent closes with a reset after its answer.
  await new Promise((resolve) => socket.once('close', resolve));
  return answer;
}

test("pages answer as upstream's do", async () => {
  const cases: [string, readonly Check[], HealthOptions['unready'], number, string][] = [
    ['/healthz', [good], AGENT_UNREADY, 200, 'ok'],
    ['/healthz', [bad], SERVER_UNREADY, 200, 'ok'],
    ['/readyz', [good], AGENT_UNREADY, 200, 'ok'],
    ['/readyz', [], SERVER_UNREADY, 200, 'ok'],
    ['/ready', [good], AGENT_UNREADY, 200, 'ok'],
    ['/readyz?verbose', [good], AGENT_UNREADY, 200, '[+]ping ok\ncheck passed\n'],
    ['/readyz', [good, bad], AGENT_UNREADY, 503, '[+]ping ok\n[-]server-connected failed: no servers connected\n'],
    ['/ready', [bad], AGENT_UNREADY, 503, '[-]server-connected failed: no servers connected\n'],
    ['/readyz', [good, bad], SERVER_UNREADY, 500, 'no servers connected'],
    [
      '/readyz?verbose',
      [good, bad],
      SERVER_UNREADY,
      500,
      '[+]ping ok\n[-]server-connected failed: no servers connected\n',
    ],
    ['/readyz?exclude=server-connected', [good, bad], SERVER_UNREADY, 200, 'ok'],
    ['/readyz?exclude=ping', [good, bad], SERVER_UNREADY, 500, 'no servers connected'],
    [
      '/readyz?verbose&exclude=server-connected&exclude=unknown',
      [good, bad],
      SERVER_UNREADY,
      200,
      '[+]ping ok\n[+]server-connected excluded: ok\ncheck passed\n',
    ],
    ['/readyz?verbose', [known], SERVER_UNREADY, 200, '[+]registry ok: answered 0.4 s ago\ncheck passed\n'],
    ['/readyz', [known, bad], AGENT_UNREADY, 503, '[+]registry ok\n[-]server-connected failed: no servers connected\n'],
    ['/metrics', [good], AGENT_UNREADY, 200, 'up 1\n'],
    ['/', [good], AGENT_UNREADY, 404, '404 page not found\n'],
    ['/healthz/', [good], AGENT_UNREADY, 404, '404 page not found\n'],
  ];
  for (const [path, checks, unready, status, body] of cases) {
    await using server = await health({ checks: () => checks, unready });
    const answer = await ask(server.address.port, path);
    assert.deepEqual([answer.status, answer.body], [status, body], path);
  }
});

test('metrics keep their content type, and a failing page says why', async () => {
  await using server = await health();
  assert.equal((await ask(server.address.port, '/metrics')).headers['content-type'], 'text/plain; version=0.0.4');
  await using failing = await health({ metrics: () => Promise.reject(new Error('no registry')) });
  assert.deepEqual((({ status, body }) => [status, body])(await ask(failing.address.port, '/metrics')), [
    500,
    'no registry\n',
  ]);
  await using throwing = await health({
    checks: () => {
      throw new Error('no checks');
    },
  });
  assert.equal((await ask(throwing.address.port, '/readyz')).status, 500);
});

test('a connection stays open between requests, for up to two idle minutes', async () => {
  await using server = await health();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { headers } = await ask(server.address.port, '/healthz', agent);
  assert.match(String(headers['keep-alive'] ?? 'timeout=120'), /timeout=120/);
  assert.notEqual(headers.connection, 'close');
  assert.equal((await ask(server.address.port, '/healthz', agent)).body, 'ok');
  agent.destroy();
});

test('garbage gets 400, and the next request is answered', async () => {
  await using server = await health();
  const { port } = server.address;
  assert.match(await raw(port, 'garbage\r\n\r\n'), /^HTTP\/1\.1 400 /);
  assert.match(await raw(port, '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'), /^(HTTP\/1\.1 400 |$)/);
  const long = `GET / HTTP/1.1\r\nHost: h\r\nX: ${'x'.repeat(1 << 20)}\r\nConnection: close\r\n\r\n`;
  assert.match(await raw(port, long), /^(HTTP\/1\.1 (431|400|404) |$)/);
  assert.match(
    await raw(port, 'GET http://h/healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n'),
    /^HTTP\/1\.1 (400|200) /,
  );
  assert.equal((await ask(port, '/healthz')).body, 'ok');
});

test('a port in use gives an error that names it', async () => {
  await using server = await health();
  const { port } = server.address;
  await assert.rejects(health({ port }), { code: 'EADDRINUSE', port, syscall: 'listen' });
});

test('closing ends open connections, and may be called twice', async () => {
  const server = await health();
  const socket = connect(server.address.port, '127.0.0.1').on('error', () => {});
  await once(socket, 'connect');
  socket.write('GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n');
  await once(socket, 'data');
  const closed = once(socket, 'close');
  await Promise.all([server.close(), server.close(), closed]);
});

/** Silent connections from an address of this machine. */
async function silent(port: number, localAddress: string, count: number): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () =>
    connect({ port, host: '127.0.0.1', localAddress })
      .on('error', () => {})
      .resume(),
  );
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  return sockets;
}

test('silent connections shut out no probe, of their own address neither: who comes takes the place of who has asked for nothing longest', async () => {
  const refusals: string[] = [];
  await using server = await health({ refused: (remote, { message }) => refusals.push(`${remote} ${message}`) });
  const { port } = server.address;
  const probe = async (localAddress: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => {});
    socket.write('GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n');
    assert.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 200 /);
    return socket;
  };
  const scraper = await probe('127.0.0.9');
  const held = [];
  for (let n = 2; n < 7; n++) held.push(...(await silent(port, `127.0.0.${n}`, SERVICE.connectionsOfSource)));
  await probe('127.0.0.2');
  await probe('127.0.0.8');
  const ended = refusals.length;
  // Of 1,281 and three more, 1,024 have a place; the kernel has a place for each.
  assert.equal(ended, 5 * SERVICE.connectionsOfSource + 3 - SERVICE.connections);
  assert.match(refusals.at(-1) ?? '', /^127\.0\.0\.[2-6]:\d+ it made room for a new connection: 1024 are open/);
  scraper.write('GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n');
  assert.match(String((await once(scraper, 'data'))[0]), /^HTTP\/1\.1 200 /, 'an address with few keeps them');
  for (const socket of held) socket.destroy();
});

test('a client that goes away, also amid its answer, was not refused', () => {
  const refusals: string[] = [];
  const server = new Server();
  refuseBadRequests(server, (_, { message }) => refusals.push(message));
  for (const code of ['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'HPE_INVALID_METHOD', 'ERR_HTTP_REQUEST_TIMEOUT'])
    server.emit('clientError', Object.assign(new Error(code), { code }), new Socket().destroy());
  assert.deepEqual(refusals, ['HPE_INVALID_METHOD', 'ERR_HTTP_REQUEST_TIMEOUT']);
});

test('a connection that asks keeps its place before those that do not', async () => {
  await using server = await health();
  const { port } = server.address;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const closed: Socket[] = [];
  agent.on('free', (socket: Socket) => socket.once('close', () => closed.push(socket)));
  await ask(port, '/healthz', agent);
  const held = await silent(port, '127.0.0.1', SERVICE.connectionsOfSource - 2);
  // Accepted behind all of them.
  await ask(port, '/healthz');
  await ask(port, '/healthz', agent);
  held.push(...(await silent(port, '127.0.0.1', 20)));
  await ask(port, '/healthz');
  await ask(port, '/healthz', agent);
  assert.equal(closed.length, 0);
  for (const socket of held) socket.destroy();
  agent.destroy();
});

test('what is not a probe costs one small read: requests that wait for no answer, bodies and long heads', async () => {
  let asked = 0;
  await using server = await health({
    checks() {
      asked++;
      return [good];
    },
  });
  const { port } = server.address;
  await raw(port, 'GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n'.repeat(1000));
  assert.ok(asked <= 2, `${asked} were answered of 1,000 that came at once`);
  assert.match(
    await raw(port, 'POST /readyz HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nx'),
    /^HTTP\/1\.1 200 /,
  );
  const head = `GET /readyz HTTP/1.1\r\nHost: h\r\nX: ${'x'.repeat(SERVICE.headBytes)}\r\n\r\n`;
  assert.match(await raw(port, head), /^HTTP\/1\.1 431 /);
});

test('a registry that has answered once never makes a program unready, and the check shows its age', () => {
  const now = 10_000;
  const cases: [Parameters<typeof registryCheck>[0], boolean, string][] = [
    [{ synced: false, up: false, detail: 'ECONNREFUSED' }, false, 'no copy of the registry yet: ECONNREFUSED'],
    [{ synced: true, up: true, detail: 'following' }, true, 'following'],
    [{ synced: true, up: true, detail: 'following', lastAnswerAt: 9_600 }, true, 'answered 0.4 s ago'],
    [
      { synced: true, up: false, detail: 'ECONNREFUSED', lastAnswerAt: 1_000 },
      true,
      'answered 9.0 s ago, dials use its copy: ECONNREFUSED',
    ],
  ];
  for (const [state, ok, detail] of cases) {
    assert.deepEqual(registryCheck(state, now), { name: 'registry', ok, detail });
  }
});

test('where a tenant needs sessions, those of another are counted, but do not make a server ready', () => {
  const cases: [Record<string, number>, boolean, string, quarantined?: number][] = [
    [{}, false, 'no agent has a session'],
    [{ other: 1 }, false, 'no agent has a session (of other tenants: 1)'],
    [{ default: 3 }, true, 'sessions: 3 (default: 3)'],
    [{ default: 3, other: 5 }, true, 'sessions: 8 (other: 5, default: 3)'],
    [{ default: 3 }, true, 'sessions: 3 (default: 3), 2 in quarantine', 2],
  ];
  for (const [counts, ok, detail, quarantinedSessions = 0] of cases) {
    const sessionsOf = (tenant: string) => counts[tenant] ?? 0;
    const directory = { sessionsOf, tenants: () => Object.entries(counts), quarantinedSessions };
    assert.deepEqual({ ...sessionsCheck(directory, 'default') }, { name: 'sessions', ok, detail });
    const { ok: ready, detail: told } = sessionsCheck(directory);
    assert.ok(ready, 'a gateway lets dials wait for sessions');
    assert.equal(told, ok ? detail : countSessions(Object.entries(counts)));
  }
});

test('of many tenants, those with the most sessions are listed, and the rest are summed up', () => {
  const tenants = Array.from({ length: 25 }, (_, n) => [`t${n}`, n + 1] as const);
  const listed = tenants.slice(5).reverse();
  const text = listed.map(([tenant, sessions]) => `${tenant}: ${sessions}`).join(', ');
  assert.equal(countSessions(tenants), `sessions: 325 (${text}, 5 others: 15)`);
  assert.equal(countSessions([['a: 1\n[+]', 2]]), 'sessions: 2 ("a: 1\\n[+]": 2)');
});

test('a probe that only asks whether there are sessions does not count them per tenant', () => {
  const tenants = () => assert.fail('counted');
  assert.equal(sessionsCheck({ sessionsOf: () => 1, tenants, quarantinedSessions: 0 }, 'default').ok, true);
});

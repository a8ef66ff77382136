import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { request as ask, type IncomingMessage } from 'node:http';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { type DialRequest, type Operation, planeEvents } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import type { PlanePart } from '../calls/members.ts';
import { Recent } from '../calls/recent.ts';
import type { AdminOptions, AdminServer } from '../server.ts';
import { aPort, aSession, aTunnel, idleBackend } from '../testing/backend.ts';

const CONSOLE = { when: 'auto', traceUrl: 'https://traces.example/{trace_id}' } as const;
const MEMBER = 'http://127.0.0.1:8195';

const plane: PlanePart = {
  registry: { synced: true, up: true, detail: '', lastAnswerAt: undefined },
  members: async () => [],
  lastMembers: () => [
    {
      memberId: 'h',
      roles: ['hub'],
      adminAddress: '127.0.0.1:8195',
      host: hostname(),
      version: '1',
      zone: '',
      since: 1,
    },
  ],
  hubs: () => [],
  linkTo: () => 'none',
  rttTo: () => undefined,
  failureOf: () => undefined,
};

function serve(given: Partial<AdminBackend> = {}, options: Partial<AdminOptions> = {}): Promise<AdminServer> {
  return aPort({ backend: idleBackend({ plane, ...given }), console: CONSOLE, warn: () => {}, ...options });
}

interface Asked {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

async function get(server: AdminServer, path: string, { method = 'GET', headers, body = '' }: Asked = {}) {
  const { address, port } = server.address;
  const asked = ask({ host: address, port, path, method, headers, agent: false }).end(body);
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, body: await text(response) };
}

/** Asks the member itself. @returns the lines of the answer, or the refusal */
async function post(server: AdminServer, method: string, message: object, headers: Record<string, string> = {}) {
  const all = { 'content-type': 'application/json', ...headers };
  const question = JSON.stringify({ method, message, members: [] });
  const { status, body } = await get(server, '/ask', { method: 'POST', headers: all, body: question });
  const lines = body.split('\n').filter((line) => line !== '');
  return { status, lines: status === 403 ? [] : lines.map((line) => JSON.parse(line)) };
}

/** Watches dials. @returns what comes, and ends */
async function watching(server: AdminServer, message: object = {}): Promise<IncomingMessage> {
  const asked = ask({
    ...{ host: '127.0.0.1', port: server.address.port, path: '/ask', method: 'POST', agent: false },
    headers: { 'content-type': 'application/json' },
  }).end(JSON.stringify({ method: 'WatchDials', message, members: [] }));
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  return response;
}

test('the page comes from memory, with a policy that lets nothing else in, and once', async () => {
  await using server = await serve();
  const page = await get(server, '/console/');
  assert.equal(page.status, 200, page.body);
  assert.equal(page.headers['content-type'], 'text/html; charset=utf-8');
  assert.doesNotMatch(page.body, /https?:|<script>|<style|\son\w+=/);
  const policy = `${page.headers['content-security-policy']}`;
  assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'; /);
  assert.match(policy, /connect-src 'self';/);
  assert.match(policy, /frame-ancestors 'none'; require-trusted-types-for 'script'/);
  assert.doesNotMatch(policy, /unsafe|nonce|\*|data:/);
  const again = await get(server, '/console/', { headers: { 'if-none-match': `${page.headers.etag}` } });
  assert.deepEqual([again.status, again.body], [304, '']);
  for (const name of ['console.js', 'console.css', 'icon.svg']) {
    const file = await get(server, `/console/${name}`);
    assert.equal(file.status, 200, name);
    assert.equal(file.headers['x-content-type-options'], 'nosniff');
  }
  assert.deepEqual(JSON.parse((await get(server, '/console/settings.json')).body), {
    traceUrl: CONSOLE.traceUrl,
    tenant: '',
    member: 'm1',
  });
  assert.equal((await get(server, '/console')).headers.location, '/console/');
  for (const path of ['/console/none', '/console/constructor', '/console/..%2fetc']) {
    assert.equal((await get(server, path)).status, 404, path);
  }
  assert.equal((await get(server, '/consoles')).body, '404 page not found\n');
});

test('the console is off where anyone could reach it, unless it is turned on there and has mutual TLS', async () => {
  const everywhere = { host: '0.0.0.0' };
  const rows = [
    [everywhere, 'auto', 404, /--console=on turns it on/],
    [everywhere, 'on', 403, /mutual TLS: set --admin-server-cert/],
    [{}, 'off', 404, /--console=on turns it on/],
    [{}, 'on', 200, /<!doctype html>/],
  ] as const;
  for (const [where, when, status, body] of rows) {
    await using server = await serve({}, { ...where, console: { when, traceUrl: '' } });
    const { status: found, body: said } = await get(server, '/console/');
    assert.equal(found, status, when);
    assert.match(said, body);
  }
});

test('what the member says of itself and does is the RPC, in JSON', async () => {
  const ended: string[] = [];
  const kick = { tunnel: (id: string, { message }: Error) => ended.push(`${id}: ${message}`) };
  await using server = await serve({ kick, sessions: () => [aSession('s1', { since: 2 ** 50 })] });
  const { lines } = await post(server, 'ListSessions', {});
  assert.deepEqual(lines[0].answer.sessions[0], {
    ...{ sessionId: 's1', tenant: 'default', agentId: 'a', hubId: 'h', protocol: 1, remote: '10.0.0.1:5000' },
    ...{ sinceMs: 2 ** 50, draining: false, quarantined: false, quarantineReason: '', tunnels: 0 },
    drainingSinceMs: 0,
    suspected: false,
    certificateEndsMs: 0,
    identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false },
  });
  assert.match((await post(server, 'Explain', {})).lines[0].error.message, /routes no dials/);
  const form = { method: 'POST', headers: { 'content-type': 'text/plain' }, body: '{"method":"Kick"}' };
  assert.equal((await get(server, '/ask', form)).status, 400);
  assert.deepEqual(ended, []);
  assert.equal((await post(server, 'Kick', { dialId: 'd1', reason: 'old' })).status, 200);
  assert.deepEqual(ended, ['d1: ended by an operator: old']);
});

test("errors have Connect's codes, and say what to do", async () => {
  await using server = await serve();
  for (const [method, message, code, said] of [
    ['Kick', { reason: 5 }, 'invalid_argument', /reason/],
    ['Kick', {}, 'invalid_argument', /no target/],
    ['Kick', { dialId: 'd1' }, 'not_found', /no tunnel of dial d1/],
    ['Explain', {}, 'unimplemented', /gateway/],
  ] as const) {
    const [line] = (await post(server, method, message)).lines;
    assert.equal(line.error.code, code);
    assert.match(line.error.message, said);
  }
  const unknown = await post(server, 'Nothing', {});
  assert.deepEqual([unknown.status, unknown.lines[0].code], [501, 'unimplemented']);
  const broken = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{' };
  assert.match((await get(server, '/ask', broken)).body, /no JSON/);
  const long = await post(server, 'Kick', { reason: 'x'.repeat(70_000) });
  assert.equal(long.status, 429);
});

test('no page of another site gets an answer, and what it tried is audited', async () => {
  const operations: Operation[] = [];
  await using server = await serve({ operated: (operation) => operations.push(operation) });
  const evil = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' };
  assert.equal((await post(server, 'Drain', {}, evil)).status, 403);
  assert.equal((await post(server, 'GetStatus', {}, { 'sec-fetch-site': 'cross-site' })).status, 403);
  assert.deepEqual(
    operations.map(({ call, outcome }) => [call, outcome]),
    [
      ['Ask', 'refused'],
      ['Ask', 'refused'],
    ],
  );
  const rebound = { headers: { host: 'evil.example' } };
  for (const path of ['/console/', '/ask']) assert.equal((await get(server, path, rebound)).status, 403);
  const options = await get(server, '/ask', { method: 'OPTIONS', headers: evil });
  assert.deepEqual([options.status, options.headers['access-control-allow-origin']], [403, undefined]);
});

test('no path of the port answers a page of another site, nor one under a name that is not its own', async () => {
  const foreign = [
    { host: 'evil.example' },
    { origin: 'https://evil.example' },
    { origin: MEMBER },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ];
  await using server = await serve({}, { profiling: true });
  for (const path of ['/metrics', '/debug/pprof/heap', '/debug/pprof/profile?seconds=1', '/']) {
    for (const headers of foreign) {
      const { status, body } = await get(server, path, { headers });
      assert.equal(status, 403, `${path} ${JSON.stringify(headers)}`);
      assert.match(body, /under a name that is not its own|a page of another site/);
    }
  }
  const own = { 'sec-fetch-site': 'none' };
  for (const headers of [{}, own]) assert.equal((await get(server, '/metrics', { headers })).body, 'a page\n');
});

test('a unix socket, which no browser reaches, is asked under any name', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'isthmus-console-'));
  const path = join(dir, 'admin.sock');
  {
    await using _server = await serve({}, { path });
    for (const [asked, status] of [
      ['/metrics', 200],
      ['/console/', 200],
    ] as const) {
      const request = ask({ socketPath: path, path: asked, headers: { host: 'x' }, agent: false }).end();
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      await text(response);
      assert.equal(response.statusCode, status, asked);
    }
  }
  await rm(dir, { recursive: true });
});

test("another member's page is one of another site", async () => {
  await using server = await serve();
  assert.equal((await post(server, 'GetStatus', {}, { origin: MEMBER })).status, 403);
});

function dialOf(id: string): DialRequest {
  const { signal } = new AbortController();
  return { id, tenant: 'default', destination: { host: 'h', port: 1 }, deadline: 0, signal };
}

test('a stream is a line of JSON for each dial, until the page goes', async () => {
  const events = planeEvents();
  const recent = new Recent(events);
  await using server = await serve({ recent });
  const response = await watching(server, { phases: true });
  assert.equal(response.headers['content-type'], 'application/x-ndjson');
  let said = '';
  response.on('data', (chunk) => {
    said += chunk;
  });
  await until(() => recent.watchers === 1, { what: 'a watcher' });
  events.emit('dial:start', 'gateway', dialOf('d1'));
  events.emit('dial:end', 'gateway', dialOf('d1'), { ms: 5 });
  const lines = () => said.split('\n').filter((line) => line !== '');
  await until(() => lines().length === 2, { what: 'two events' });
  const [begun, ended] = lines().map((line) => JSON.parse(line).answer.dial);
  assert.deepEqual([begun.dialId, begun.state, begun.phases], ['d1', 1, []]);
  assert.deepEqual([ended.state, ended.phases.length, ended.phases[0].name], [2, 1, 'gateway']);
  response.destroy();
  await until(() => recent.watchers === 0, { what: 'the end of the watching' });
});

test('a page that does not read its stream costs a thousand events, and slows down no dial', async () => {
  const events = planeEvents();
  const recent = new Recent(events);
  await using server = await serve({ recent });
  const response = await watching(server);
  await until(() => recent.watchers === 1, { what: 'a watcher' });
  const long = { ...dialOf('x'.repeat(200)), destination: { host: 'h'.repeat(250), port: 1 } };
  for (let round = 0; round < 100; round++) {
    for (let n = 0; n < 1000; n++) events.emit('dial:end', 'gateway', long, { ms: 1 });
    await new Promise(setImmediate);
  }
  let said = '';
  response.on('data', (chunk) => {
    said += chunk;
  });
  const lost = () => [...said.matchAll(/"lost":(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
  const kept = () => said.split('"dialId"').length - 1;
  await until(() => kept() + lost() === 100_000, { what: () => `all events; ${kept()} came, and ${lost()} were lost` });
  // Of 100,000 events of 500 bytes, sockets and the queue hold a few thousand.
  assert.ok(lost() > 50_000, `${lost()} were lost`);
});

test('tunnels are those of the RPC', async () => {
  const { signal } = new AbortController();
  const evil = '<script>alert(1)</script>';
  const tunnel = aTunnel({ agentId: evil, dial: { ...dialOf('d1'), signal }, up: 2 ** 40 });
  await using server = await serve({ tunnels: () => new Set([tunnel]) });
  const { lines } = await post(server, 'ListTunnels', {});
  const [found] = lines[0].answer.tunnels;
  assert.deepEqual([found.agentId, found.bytesUp, found.role], [evil, 2 ** 40, 1]);
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isPrintable } from '@isthmus/runtime';
import { changed } from '@isthmus/runtime/testing';
import { NotAuthorised } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { SocketEnd } from '../socket-end.ts';
import { listen } from './testing.ts';
import {
  type AgentHello,
  type HubHello,
  LINK_PATH,
  LINK_PROTOCOL,
  LinkRefused,
  requestLink,
  upgradeServer,
} from './upgrade.ts';

const ACCEPTED =
  'HTTP/1.1 101 Switching Protocols\r\nisthmus-hub: h1\r\nisthmus-session: s1\r\nisthmus-plane: p\r\n\r\n';
const REFUSED = (reason: string) => `HTTP/1.1 403 Forbidden\r\nisthmus-error: ${reason}\r\n\r\n`;

const HELLO = { agentId: 'a1', identifiers: '', version: '1' };

/** What an agent is told by a hub that answers so. */
async function answer(head: string, hello: Partial<AgentHello> = { tenant: 'default' }): Promise<HubHello> {
  return ask(await listen(net.createServer((socket) => void socket.on('error', () => {}).write(head))), hello);
}

async function ask(port: number, hello: Partial<AgentHello>): Promise<HubHello> {
  const socket = net.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  try {
    return await requestLink(socket, 'hub', { ...HELLO, ...hello }, 60_000);
  } finally {
    socket.destroy();
  }
}

test('an answer that holds is a hub', async () => {
  const hub = { hubId: 'h1', sessionId: 's1', plane: 'p', serverCount: 1 };
  assert.deepEqual(await answer(ACCEPTED), { ...hub, tenant: 'default' });
  const more = (fields: string) => ACCEPTED.replace('\r\n\r\n', `\r\n${fields}\r\n\r\n`);
  const told = more('isthmus-tenant: default\r\nisthmus-policy: ?1');
  assert.deepEqual(await answer(told), { ...hub, tenant: 'default', policy: true });
  assert.deepEqual(await answer(more('isthmus-tenant: acme'), {}), { ...hub, tenant: 'acme' });
});

test('a hub of an earlier version says no tenant: then it is the one that the agent named', async () => {
  const tenants = async (hello: Partial<AgentHello>) => (await answer(ACCEPTED, hello)).tenant;
  assert.equal(await tenants({ tenant: 'acme' }), 'acme');
  assert.equal(await tenants({}), 'default');
});

test('a hub that takes the agent for one of another tenant is left', async () => {
  const head = ACCEPTED.replace('\r\n\r\n', '\r\nisthmus-tenant: bolt\r\n\r\n');
  await assert.rejects(answer(head, { tenant: 'acme' }), {
    name: 'LinkRefused',
    status: 101,
    message: 'the hub takes this agent for one of tenant bolt, and --tenant is acme',
  });
});

test('a hub hears the tenant that the agent names, and the agent the one that the hub found', async () => {
  const heard: (string | undefined)[] = [];
  const upgrades = upgradeServer({
    async admit({ tenant }) {
      heard.push(tenant);
      return { hubId: 'h1', sessionId: 's1', tenant: tenant ?? 'found', policy: true, plane: '', serverCount: 1 };
    },
    open() {},
    refused: (_socket, error) => assert.fail(error),
    fault: (_socket, error) => assert.fail(error),
  });
  const port = await listen(net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))));
  for (const [hello, tenant] of [
    [{}, 'found'],
    [{ tenant: 'acme' }, 'acme'],
  ] as const) {
    const { tenant: told, policy } = await ask(port, hello);
    assert.deepEqual([told, policy], [tenant, true]);
  }
  assert.deepEqual(heard, [undefined, 'acme']);
});

test('the answer leaves with the first frames of the link', async () => {
  const upgrades = upgradeServer({
    admit: async () => ({ hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: 1 }),
    open: (socket) => void setImmediate(() => socket.write('frames')),
    refused: (_socket, error) => assert.fail(error),
    fault: (_socket, error) => assert.fail(error),
  });
  const port = await listen(net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))));
  const socket = net.connect(port, '127.0.0.1');
  socket.write(`GET ${LINK_PATH} HTTP/1.1\r\nupgrade: ${LINK_PROTOCOL}\r\nisthmus-agent: a\r\n\r\n`);
  const [first] = await once(socket, 'data');
  assert.match(String(first), /^HTTP\/1\.1 101 .*\r\n\r\nframes$/s);
  socket.destroy();
});

test('a hub takes no agent by the name of what gateways dial themselves', async () => {
  const upgrades = upgradeServer({
    admit: () => assert.fail('it was admitted'),
    open() {},
    refused() {},
    fault: (_socket, error) => assert.fail(error),
  });
  const port = await listen(net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))));
  await assert.rejects(ask(port, { agentId: 'direct' }), /isthmus-agent "direct" is taken: .* set another --agent-id/);
});

/** A refusal shows that the other side knows the protocol, whatever else it says, so that an agent does not try gRPC there. */
for (const [what, head, status, message] of [
  ['a hub', ACCEPTED.replace('hub: h1', 'hub: %zz'), 101, 'the answer\'s isthmus-hub is not percent-encoded: "%zz"'],
  [
    'a plane',
    ACCEPTED.replace('plane: p', 'plane: %c3'),
    101,
    'the answer\'s isthmus-plane is not percent-encoded: "%c3"',
  ],
  [
    'a hub of control characters',
    ACCEPTED.replace('hub: h1', 'hub: %1b%5b'),
    101,
    /^the answer's isthmus-hub with control/,
  ],
  ['a session of 300 characters', ACCEPTED.replace('s1', 's'.repeat(300)), 101, /^the answer's isthmus-session of 300/],
  [
    'no hub',
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n',
    101,
    "the answer names no hub: something else than a hub's agent port answered",
  ],
  ['a reason', REFUSED('%zz'), 403, '%zz'],
  ['a reason that is encoded', REFUSED('n%C3%B6'), 403, 'nö'],
  ['a reason for a terminal', REFUSED('a%1b%5bb'), 403, 'a\\u{1b}[b'],
  ['an endless reason', REFUSED('x'.repeat(10_000)), 403, 'x'.repeat(1_000)],
  ['no reason', REFUSED(''), 403, 'answered with status 403'],
] as const) {
  test(`an answer with ${what} that does not hold is a refusal that says so`, async () => {
    await assert.rejects(answer(head), (error) => {
      assert.ok(error instanceof LinkRefused, `${error}`);
      assert.equal(error.status, status);
      if (typeof message === 'string') assert.equal(error.message, message);
      else assert.match(error.message, message);
      return true;
    });
  });
}

test('a hub hears how rarely the agent wants PINGs, and its answer says what counts, and when', async () => {
  const heard: (number | undefined)[] = [];
  const upgrades = upgradeServer({
    async admit({ pingSeconds }) {
      heard.push(pingSeconds);
      const own = { hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: 1 };
      if (pingSeconds === undefined) return { ...own, ping: { seconds: 3, atRest: true } };
      return { ...own, ping: { seconds: pingSeconds, atRest: false } };
    },
    open() {},
    refused() {},
    fault() {},
  });
  const port = await listen(net.createServer((socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))));
  assert.deepEqual((await ask(port, { pingSeconds: 60 })).ping, { seconds: 60, atRest: false });
  assert.deepEqual((await ask(port, {})).ping, { seconds: 3, atRest: true });
  for (const pingSeconds of [0, 301, 1.5, Number.NaN])
    await assert.rejects(ask(port, { pingSeconds }), /isthmus-ping is .*want 1 to 300/);
  assert.deepEqual(heard, [60, undefined]);
  assert.equal((await answer(ACCEPTED, { pingSeconds: 60 })).ping, undefined, 'a hub of an earlier version');
});

test('a refusal reaches an agent that is still sending, whoever refuses it, and the connection ends', async () => {
  const admit = async () => {
    throw new NotAuthorised('the token has expired');
  };
  let refusals = 0;
  const upgrades = upgradeServer({
    admit,
    open() {},
    refused: () => refusals++,
    fault: (_, error) => assert.fail(error),
  });
  const port = await listen(
    net.createServer({ allowHalfOpen: true }, (socket) => upgrades(new SocketEnd(socket), Buffer.alloc(0))),
  );
  const upgrade = `GET ${LINK_PATH} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: ${LINK_PROTOCOL}\r\n`;
  const refused = (head: string, told: RegExp) => Array.from({ length: 10 }, () => ({ head, told }));
  for (const { head, told } of [
    ...refused(`${upgrade}isthmus-agent: a\r\n\r\n`, /^HTTP\/1\.1 403 .*isthmus-error: not%20authorised[^\r]*\r/s),
    ...refused(
      'POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9999999\r\n\r\n',
      /^HTTP\/1\.1 404 .*this%20port%20is%20for/s,
    ),
    ...refused('nonsense\r\n\r\n', /^HTTP\/1\.1 400 .*isthmus-error: /s),
  ]) {
    const socket = net.connect(port, '127.0.0.1');
    const closed = once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
    const answer = once(socket, 'readable', { signal: AbortSignal.timeout(20_000) });
    socket.write(head);
    // It is busy, and sends on before it reads.
    await answer;
    for (let n = 0; n < 30; n++) {
      socket.write(Buffer.alloc(1000));
      await tick();
    }
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk;
    });
    await closed;
    assert.match(text, told);
  }
  assert.equal(refusals, 30);
});

const START = `GET ${LINK_PATH} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\n`;
const ASKS = `${START}upgrade: ${LINK_PROTOCOL}\r\nisthmus-agent: a\r\n`;

/** A hub that takes every agent, what it heard, and how it answers bytes on a connection. */
async function openHub() {
  const hellos: AgentHello[] = [];
  const refusals: string[] = [];
  const upgrades = upgradeServer({
    async admit(hello) {
      hellos.push(hello);
      return { hubId: 'h1', sessionId: 's1', tenant: 'default', plane: '', serverCount: 1 };
    },
    open: (socket) => void socket.end(),
    refused: (_socket, error) => void refusals.push(error.message),
    fault: (_socket, error) => assert.fail(error),
  });
  const server = net.createServer({ allowHalfOpen: true }, (socket) =>
    upgrades(new SocketEnd(socket), Buffer.alloc(0)),
  );
  const port = await listen(server);
  const answerTo = async (...pieces: string[]): Promise<[status: number, error: string]> => {
    const socket = net.connect(port, '127.0.0.1');
    let text = '';
    socket.setEncoding('latin1').on('data', (chunk) => {
      text += chunk;
    });
    for (const piece of pieces) {
      socket.write(piece, 'latin1');
      await tick();
    }
    socket.end();
    await once(socket, 'close', { signal: AbortSignal.timeout(20_000) });
    const [, error = ''] = /isthmus-error: (.*)\r\n/.exec(text) ?? [];
    return [Number(text.slice(9, 12)), decodeURIComponent(error)];
  };
  return { port, hellos, refusals, answerTo };
}

const LONG = 'y'.repeat(10_000);

for (const [what, head, status, message] of [
  ['a bell', `${ASKS}isthmus-tenant: a\x07\r\n\r\n`, 400, 'line 6 of the head is not a header field'],
  ['ESC', `${START}upgrade: \x1b]0;x\r\n\r\n`, 400, 'line 4 of the head is not a header field'],
  ['a bare line feed', `${ASKS}x: a\nb\r\n\r\n`, 400, 'line 7 of the head is not a header field'],
  ['NUL in its path', 'GET /\0 HTTP/1.1\r\n\r\n', 400, 'not an HTTP request: "GET /\\u0000 HTTP/1.1"'],
  ['NUL', `${ASKS}x: a\0\r\n\r\n`, 400, 'line 6 of the head is not a header field'],
  ['a line without a colon', `${ASKS}x\r\n\r\n`, 400, 'line 6 of the head is not a header field'],
  ['a space before its colon', `${ASKS}x : a\r\n\r\n`, 400, 'line 6 of the head is not a header field'],
  ['a folded line', `${ASKS}x: a\r\n b\r\n\r\n`, 400, 'line 7 of the head is not a header field'],
  ['two tenants', `${ASKS}isthmus-tenant: a\r\nisthmus-tenant: b\r\n\r\n`, 400, '"isthmus-tenant" comes twice'],
  [
    'two tokens',
    `${ASKS}authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n`,
    400,
    '"authorization" comes twice',
  ],
  ['two protocols', `${ASKS}upgrade: x\r\n\r\n`, 400, '"upgrade" comes twice'],
  [
    'another protocol',
    `${START}upgrade: \x9b${LONG}\r\n\r\n`,
    404,
    `this port serves isthmus-link/1 at /isthmus/link, not "\\u{9b}${'y'.repeat(59)}"`,
  ],
  [
    'another method',
    `${LONG.toUpperCase()} / HTTP/1.1\r\n\r\n`,
    404,
    `this port is for agents: isthmus-link/1 or gRPC, not "${'Y'.repeat(60)}"`,
  ],
  ['33 KiB', `${ASKS}x: ${'y'.repeat(33 * 1024)}\r\n\r\n`, 431, "the request's head is longer than 32768 bytes"],
  ['no end', 'GET ', 400, 'the connection ended in the middle of its request'],
] as const) {
  test(`a request with ${what} is refused in words that are safe to show, however it arrives`, async () => {
    const { hellos, refusals, answerTo } = await openHub();
    assert.ok(isPrintable(message));
    assert.deepEqual(await answerTo(head), [status, message]);
    assert.deepEqual(await answerTo(head.slice(0, 3), head.slice(3)), [status, message]);
    assert.deepEqual([hellos, refusals], [[], [message, message]]);
  });
}

test('a head may be as long as the limit, wherever it is split', async () => {
  const { answerTo } = await openHub();
  const head = `${ASKS}x: `.padEnd(TRANSPORT.requestHeadBytes, 'y');
  for (const end of [['\r\n\r\n'], ['\r\n\r', '\n']]) assert.deepEqual(await answerTo(head, ...end), [101, '']);
  assert.equal((await answerTo(`${head}y\r\n\r\n`))[0], 431);
});

test('a field that does not count may come twice', async () => {
  const { answerTo } = await openHub();
  assert.deepEqual(await answerTo(`${ASKS}via: a\r\nvia: b\r\n\r\n`), [101, '']);
});

test('a request that does not come in time is answered so', async () => {
  using _ = changed(TRANSPORT, { requestHeadMs: 50 });
  const { port } = await openHub();
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
  const [answer] = await once(socket, 'data', { signal: AbortSignal.timeout(20_000) });
  assert.match(answer, /^HTTP\/1\.1 408 Request Timeout\r\n.*isthmus-error: no%20request%20in%20time/s);
});

test('what is kept of a hello does not keep the head that it came in', { skip: 'Deno' in globalThis }, async () => {
  setFlagsFromString('--expose-gc');
  const gc: () => void = runInNewContext('gc');
  const { hellos, answerTo } = await openHub();
  const come = async (agents: number) => {
    for (let n = 0; n < agents; n++) {
      const token = `authorization: Bearer ${'t'.repeat(20)}${n}\r\n`;
      const kept = `isthmus-instance: 0123456789abcdef\r\nisthmus-version: v1-of-20-characters\r\n${token}`;
      const [status] = await answerTo(`${ASKS}${kept}isthmus-identifiers: host-of-20-characters\r\nx: ${LONG}\r\n\r\n`);
      assert.equal(status, 101);
    }
    gc();
    return process.memoryUsage().heapUsed;
  };
  const before = await come(20);
  const growth = (await come(200)) - before;
  assert.equal(hellos.length, 220);
  assert.ok(growth < (200 * LONG.length) / 2, `${growth} bytes`);
});

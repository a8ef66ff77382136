import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { NotAuthorised } from '@isthmus/tunnel';
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
  const port = await listen(net.createServer((socket) => upgrades.accept(socket)));
  for (const [hello, tenant] of [
    [{}, 'found'],
    [{ tenant: 'acme' }, 'acme'],
  ] as const) {
    const { tenant: told, policy } = await ask(port, hello);
    assert.deepEqual([told, policy], [tenant, true]);
  }
  assert.deepEqual(heard, [undefined, 'acme']);
});

test('a hub takes no agent by the name of what gateways dial themselves', async () => {
  const upgrades = upgradeServer({
    admit: () => assert.fail('it was admitted'),
    open() {},
    refused() {},
    fault: (_socket, error) => assert.fail(error),
  });
  const port = await listen(net.createServer((socket) => upgrades.accept(socket)));
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
  const port = await listen(net.createServer((socket) => upgrades.accept(socket)));
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
  const port = await listen(net.createServer({ allowHalfOpen: true }, (socket) => upgrades.accept(socket)));
  const upgrade = `GET ${LINK_PATH} HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: ${LINK_PROTOCOL}\r\n`;
  const refused = (head: string, told: RegExp) => Array.from({ length: 10 }, () => ({ head, told }));
  for (const { head, told } of [
    ...refused(`${upgrade}isthmus-agent: a\r\n\r\n`, /^HTTP\/1\.1 403 .*isthmus-error: the%20token%20has%20expired\r/s),
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
      await turn();
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

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { test } from 'node:test';
import { Metadata, status } from '@grpc/grpc-js';
import { DEADLINE_MS, until } from '@isthmus/runtime/testing';
import { SessionLost } from '@isthmus/tunnel';
import { streamOf } from '@isthmus/tunnel/testing';
import { AgentLimitError } from '../identifiers.ts';
import { CONNECT_METHOD } from '../packets/mux.ts';
import { cleanups } from '../testing/cleanups.ts';
import { connectPackets } from './client.ts';
import {
  agentAtHub,
  callMethod,
  connect,
  connected,
  destination,
  echo,
  ended,
  hub,
  listen,
  request,
} from './testing/plane.ts';

test('an agent of ours carries tunnels of a hub of ours over AgentService', async () => {
  const { client, clients, agents, served, server } = await agentAtHub();
  assert.equal(clients.length, 1);
  assert.equal(agents[0]?.agentId, 'a1');
  assert.match(agents[0]?.peer.remote ?? '', /^127\.0\.0\.1:\d+$/);
  const { end } = await client.dial(request(await destination(echo)));
  streamOf(end).write('hello');
  assert.equal(String((await once(streamOf(end), 'data'))[0]), 'hello');
  streamOf(end).end();
  await until(() => client.open === 0 && served.open === 0, 'tunnel gone');
  served.destroy(new Error('over'));
  await until(() => server.connections === 0, 'connection gone');
  assert.ok((await client.closed) instanceof SessionLost);
});

test('a hub tells its id and count at once and reads the identifiers', async () => {
  const { target, agents } = await hub();
  const link = await connect(target, 'ipv4=10.0.0.1&default-route=true');
  cleanups.push(() => link.channel.destroy(new Error('over')));
  assert.deepEqual([link.serverId, link.serverCount], ['h1', 3]);
  assert.deepEqual(agents[0]?.identifiers, { ipv4: ['10.0.0.1'], ipv6: [], host: [], cidr: [], defaultRoute: true });
});

const BAD_AGENTS: [what: string, metadata: Record<string, string | string[]>, code: status, details: RegExp][] = [
  ['no id', {}, status.INVALID_ARGUMENT, /expected one agent ID in the context, got \[\]/],
  ['two ids', { agentid: ['a', 'b'] }, status.INVALID_ARGUMENT, /expected one agent ID in the context, got \[a b\]/],
  [
    'the id of none',
    { agentid: 'direct' },
    status.INVALID_ARGUMENT,
    /agent ID "direct" is taken: .* another --agent-id/,
  ],
  [
    'two sets of identifiers',
    { agentid: 'a', agentidentifiers: ['host=a', 'host=b'] },
    status.INVALID_ARGUMENT,
    /expected at most one set of agent identifiers/,
  ],
  [
    'malformed identifiers',
    { agentid: 'a', agentidentifiers: 'host=%zz' },
    status.INVALID_ARGUMENT,
    /fail to parse url encoded string: invalid URL escape "%zz"/,
  ],
  ['no token', { agentid: 'a' }, status.UNAUTHENTICATED, /Authentication context was not found/],
  ['a token of another kind', { agentid: 'a', authorization: 'Basic x' }, status.UNAUTHENTICATED, /"Bearer " prefix/],
  ['a bad token', { agentid: 'a', authorization: 'Bearer bad' }, status.UNAUTHENTICATED, /err:token is bad/],
];

for (const [what, fields, code, details] of BAD_AGENTS) {
  test(`an agent with ${what} is refused`, async () => {
    const check = async (token: string) => {
      if (token !== 'good') throw new Error(`token is ${token}`);
    };
    const { target, agents, events } = await hub({ admit: ({ authenticate }) => authenticate(check) });
    const refused = once(events, 'refused');
    const metadata = new Metadata();
    for (const [key, values] of Object.entries(fields)) for (const value of [values].flat()) metadata.add(key, value);
    const call = callMethod(target, CONNECT_METHOD, metadata);
    call.on('data', () => {});
    const shown = await ended(call);
    assert.equal(shown.code, code);
    assert.match(shown.details, details);
    assert.equal(agents.length, 0);
    await refused;
  });
}

test('an agent with a good token is let in', async () => {
  const check = async (token: string) => assert.equal(token, 'good');
  const { target, agents } = await hub({ admit: ({ authenticate }) => authenticate(check) });
  const { channel } = await connect(target, '', 'good');
  assert.equal(agents.length, 1);
  channel.destroy(new Error('over'));
});

test('an agent says why a server did not let it in', async () => {
  const check = () => Promise.reject(new Error('no'));
  const { target } = await hub({ admit: ({ authenticate }) => authenticate(check) });
  await assert.rejects(connect(target), { code: 'Unauthenticated', message: /Authentication context was not found/ });
  const silent = await listen(() => {});
  const signal = new AbortController().signal;
  const options = { agentId: 'a', identifiers: '', keepaliveMs: 3_600_000, timeout: 50, signal };
  const asks = async (target: string, timeout = DEADLINE_MS) =>
    connectPackets(await connected(target), { ...options, target, timeout });
  await assert.rejects(asks(silent, 50), /no answer from .* within 50 ms/);
  await assert.rejects(asks(await listen((socket) => socket.destroy())), { code: 'Unavailable' });
  const web = http2.createServer((_request, response) => response.writeHead(404).end('no'));
  await assert.rejects(asks(await listen((socket) => web.emit('connection', socket))), {
    code: 'Unimplemented',
    message: 'answered with HTTP status 404',
  });
});

test('a hub that shuts down ends what is left after its grace', async () => {
  const { client, served, server } = await agentAtHub();
  const { end } = await client.dial(request(await destination(echo)));
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.ok((await client.closed) instanceof SessionLost);
  assert.equal(streamOf(end).destroyed, true);
  await served.closed;
  await until(() => served.open === 0, 'agent has let go');
});

const LIMITED: [what: string, metadata: Record<string, string>, code: status, details: RegExp, where: string][] = [
  ['a long id', { agentid: 'a'.repeat(265) }, status.INVALID_ARGUMENT, /agent ID of 265 characters/, 'grpc agents'],
  [
    'an identifier with a line’s end',
    { agentid: 'a', agentidentifiers: 'host=a%0Ab' },
    status.INVALID_ARGUMENT,
    /identifiers with control characters/,
    'grpc agents',
  ],
  [
    'more bytes of identifiers than it may have',
    { agentid: 'a', agentidentifiers: `host=${'x'.repeat(100)}` },
    status.RESOURCE_EXHAUSTED,
    /105 bytes in the agent's identifiers, more than 100: --max-agent-identifier-bytes/,
    'agent identifiers',
  ],
  [
    'more identifiers than it may have',
    { agentid: 'a', agentidentifiers: 'a&b&c&d&e' },
    status.RESOURCE_EXHAUSTED,
    /5 identifiers in the agent's identifiers, more than 4: --max-agent-identifiers/,
    'agent identifiers',
  ],
  ['no room', { agentid: 'full' }, status.RESOURCE_EXHAUSTED, /full has enough/, 'agent sessions'],
];

for (const [what, fields, code, details, where] of LIMITED) {
  test(`an agent with ${what} is refused before its token is looked at`, async () => {
    const reviewed: string[] = [];
    const { target, agents, events } = await hub({
      identifierLimits: { identifiers: 4, identifierBytes: 100 },
      async admit({ agentId, authenticate }) {
        if (agentId === 'full') throw new AgentLimitError('agent sessions', 'full has enough');
        await authenticate(async (token) => void reviewed.push(token));
      },
    });
    const refused = once(events, 'refused');
    const metadata = new Metadata();
    metadata.add('authorization', 'Bearer x');
    for (const [key, value] of Object.entries(fields)) metadata.add(key, value);
    const call = callMethod(target, CONNECT_METHOD, metadata);
    call.on('data', () => {});
    const shown = await ended(call);
    assert.deepEqual([shown.code, (await refused)[0]], [code, where]);
    assert.match(shown.details, details);
    assert.deepEqual([agents.length, reviewed], [0, []]);
  });
}

test('an agent whose room others took while its token was looked at is told so, and not that it is in', {
  timeout: 60_000,
}, async () => {
  const { target, agents, events } = await hub({
    checkRoom() {
      throw new AgentLimitError('agent sessions', 'full has enough');
    },
  });
  const refused = once(events, 'refused');
  const metadata = new Metadata();
  metadata.add('agentid', 'full');
  const call = callMethod(target, CONNECT_METHOD, metadata);
  const heads: Metadata[] = [];
  call.on('metadata', (head: Metadata) => heads.push(head)).on('data', () => {});
  assert.equal((await ended(call)).code, status.RESOURCE_EXHAUSTED);
  assert.equal((await refused)[0], 'agent sessions');
  assert.deepEqual([heads.flatMap((head) => head.get('serverid')), agents], [[], []]);
});

test('the check of a token is given up when its agent goes away', async () => {
  const asked = Promise.withResolvers<AbortSignal>();
  const { target } = await hub({
    admit: ({ authenticate }) =>
      authenticate((_token, { signal, source }) => {
        assert.equal(source, '127.0.0.1');
        asked.resolve(signal);
        return new Promise(() => {});
      }),
  });
  const metadata = new Metadata();
  metadata.add('agentid', 'a');
  metadata.add('authorization', 'Bearer x');
  const call = callMethod(target, CONNECT_METHOD, metadata);
  call.on('error', () => {});
  const signal = await asked.promise;
  assert.equal(signal.aborted, false);
  call.cancel();
  await until(() => signal.aborted, 'it is told');
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Metadata, status } from '@grpc/grpc-js';
import { deferred } from '@isthmus/runtime';
import { DEADLINE_MS, until } from '@isthmus/runtime/testing';
import { SessionLost } from '@isthmus/tunnel';
import { AgentLimitError } from '../agent-limit.ts';
import { cleanups } from '../testing/cleanups.ts';
import { connectPackets } from './agent-client.ts';
import { CONNECT_METHOD } from './service.ts';
import { agentAtHub, callMethod, connect, destination, echo, ended, hub, listen, request } from './testing/plane.ts';

test('an agent of ours carries tunnels of a hub of ours over AgentService', async () => {
  const { dialer, dialers, agents, served, server } = await agentAtHub();
  assert.equal(dialers.length, 1);
  assert.equal(agents[0]?.agentId, 'a1');
  assert.match(agents[0]?.peer.remote ?? '', /^127\.0\.0\.1:\d+$/);
  const { end } = await dialer.dial(request(await destination(echo)));
  end.stream.write('hello');
  assert.equal(String((await once(end.stream, 'data'))[0]), 'hello');
  end.stream.end();
  await until(() => dialer.open === 0 && served.open === 0, 'tunnel gone');
  served.destroy(new Error('over'));
  await until(() => server.connections === 0, 'connection gone');
  assert.ok((await dialer.closed) instanceof SessionLost);
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
    const authenticate = async (token: string) => {
      if (token !== 'good') throw new Error(`token is ${token}`);
    };
    const { target, agents, events } = await hub({ authenticate });
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
  const { target, agents } = await hub({ authenticate: async (token) => assert.equal(token, 'good') });
  const { channel } = await connect(target, '', 'good');
  assert.equal(agents.length, 1);
  channel.destroy(new Error('over'));
});

test('an agent says why a server did not let it in', async () => {
  const { target } = await hub({
    authenticate: async () => {
      throw new Error('no');
    },
  });
  await assert.rejects(connect(target), { code: 'Unauthenticated', message: /Authentication context was not found/ });
  const silent = await listen(() => {});
  const signal = new AbortController().signal;
  const options = { agentId: 'a', identifiers: '', keepaliveMs: 3_600_000, timeout: 50, signal };
  await assert.rejects(connectPackets({ target: silent, ...options }), /no answer from .* within 50 ms/);
  const nobody = await listen(() => {});
  await (cleanups.pop() as () => Promise<void>)();
  await assert.rejects(connectPackets({ target: nobody, ...options, timeout: DEADLINE_MS }), { code: 'Unavailable' });
});

test('a hub that shuts down ends what is left after its grace', async () => {
  const { dialer, served, server } = await agentAtHub();
  const { end } = await dialer.dial(request(await destination(echo)));
  await server.close(20);
  assert.equal(server.connections, 0);
  assert.ok((await dialer.closed) instanceof SessionLost);
  assert.equal(end.stream.destroyed, true);
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
      authenticate: async (token) => void reviewed.push(token),
      identifierLimits: { identifiers: 4, identifierBytes: 100 },
      checkRoom(agentId) {
        if (agentId === 'full') throw new AgentLimitError('agent sessions', 'full has enough');
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

test('the check of a token is given up when its agent goes away', async () => {
  const asked = deferred<AbortSignal>();
  const { target } = await hub({
    authenticate: (_token, { signal, source }) => {
      assert.equal(source, '127.0.0.1');
      asked.resolve(signal);
      return new Promise(() => {});
    },
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

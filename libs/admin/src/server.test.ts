import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { describe, it } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { adminApi } from '@isthmus/proto/admin';
import type { SessionInfo, TunnelInfo } from '@isthmus/tunnel';
import type { AdminBackend } from './backend.ts';
import type { AdminOptions, AdminServer } from './server.ts';
import { aPort, idleBackend } from './testing/backend.ts';
import { adminClient } from './testing/client.ts';

function session(sessionId: string, since: number, tenant = 'default'): SessionInfo {
  return {
    sessionId,
    tenant,
    agentId: 'agent-1',
    hubId: 'hub-1',
    identifiers: { ipv4: ['10.0.0.1'], ipv6: [], host: ['node'], cidr: [], defaultRoute: true },
    protocol: 'packets',
    remote: '10.0.0.1:5000',
    since,
  };
}

function tunnel(sessionId: string, since: number): TunnelInfo {
  return {
    role: 'hub',
    dial: {
      id: `dial-${sessionId}`,
      tenant: 'default',
      destination: { host: 'fd00::1', port: 443 },
      deadline: 0,
      caller: { via: 'grpc', identity: 'uds' },
      signal: new AbortController().signal,
    },
    agentId: 'agent-1',
    sessionId,
    hubId: 'hub-1',
    since,
    up: 2 ** 40,
    down: 7,
  };
}

const backend: AdminBackend = idleBackend({
  sessions: () => [session('younger', 2000), session('elder', 1000), session('other', 1, 'acme')],
  tunnels: () => new Set([tunnel('a', 2000), tunnel('b', 1000)]),
  plan: () => ({ sessions: 2, moves: [], gracefulMs: 25_000 }),
});

const serve = (given: Partial<AdminOptions> = {}) => aPort({ backend, ...given });

function at({ address }: AdminServer): string {
  return `127.0.0.1:${address.port}`;
}

async function fetchText(server: AdminServer, path: string): Promise<string> {
  const agent = new Agent({ keepAlive: false });
  const [response] = await once(get(`http://${at(server)}${path}`, { agent }), 'response');
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  return text;
}

async function open(server: AdminServer): Promise<Socket> {
  const socket = connect(server.address.port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

describe('the admin port', () => {
  it('lists sessions, oldest first, optionally of one tenant', async () => {
    await using server = await serve();
    using client = adminClient(at(server));
    const { sessions } = await client.admin.listSessions({});
    assert.deepEqual(
      sessions.map(({ sessionId }) => sessionId),
      ['other', 'elder', 'younger'],
    );
    assert.equal(sessions[1]?.protocol, adminApi.LinkProtocol.LINK_PROTOCOL_PACKETS);
    assert.equal(sessions[1]?.sinceMs, 1000);
    assert.deepEqual(sessions[1]?.identifiers, {
      ipv4: ['10.0.0.1'],
      ipv6: [],
      host: ['node'],
      cidr: [],
      defaultRoute: true,
    });
    const acme = await client.admin.listSessions({ tenant: 'acme' });
    assert.deepEqual(
      acme.sessions.map(({ sessionId }) => sessionId),
      ['other'],
    );
  });

  it('lists tunnels with bytes and age', async () => {
    await using server = await serve();
    using client = adminClient(at(server));
    const { tunnels } = await client.admin.listTunnels({ sessionId: 'b' });
    assert.equal(tunnels.length, 1);
    const { ageMs, ...rest } = tunnels[0] as adminApi.Tunnel;
    assert.ok(ageMs > 1_000_000);
    assert.deepEqual(rest, {
      dialId: 'dial-b',
      role: adminApi.Role.ROLE_HUB,
      tenant: 'default',
      destination: '[fd00::1]:443',
      agentId: 'agent-1',
      sessionId: 'b',
      hubId: 'hub-1',
      caller: 'uds',
      sinceMs: 1000,
      bytesUp: 2 ** 40,
      bytesDown: 7,
      resume: undefined,
      halfClosed: '',
      idleMs: 0,
    });
  });

  it('starts a drain and returns what is left', async () => {
    await using server = await serve();
    using client = adminClient(at(server));
    assert.deepEqual(await client.admin.drain({}), { sessions: 2, tunnels: 2, plan: undefined });
  });

  it('returns what a drain would do, changes nothing, and lists only a bounded number', async () => {
    const move = (index: number) => ({
      sessionId: `s${index}`,
      tenant: 'default',
      agentId: `a${index}`,
      elsewhere: index % 2,
    });
    const planned: AdminBackend = {
      ...backend,
      tunnels: () => new Set(Array.from({ length: 1500 }, (_, index) => tunnel(`s${index % 3}`, 1500 - index))),
      drain: () => assert.fail('a dry run drains nothing'),
      plan: () => ({
        sessions: 2000,
        moves: Array.from({ length: 2000 }, (_, index) => move(index)),
        gracefulMs: 25_000,
      }),
    };
    await using server = await serve({ backend: planned });
    using client = adminClient(at(server));
    const { sessions, tunnels, plan } = await client.admin.drain({ dryRun: true });
    assert.deepEqual([sessions, tunnels, plan?.stranded, plan?.gracefulMs], [2000, 1500, 1000, 25_000]);
    assert.equal(plan?.moves.length, 1000);
    assert.deepEqual(plan?.moves[0], { ...move(0), tunnels: 500 });
    assert.ok(
      plan?.moves.every(({ elsewhere }) => elsewhere === 0),
      'those with nowhere to go come first',
    );
    assert.deepEqual([plan?.running.length, plan?.running[0]?.sinceMs], [1000, 1]);
  });

  it('says of each tunnel whether a drain would end it in order, move it, or cut it', async () => {
    const given = tunnel('stays', 1);
    const halves = { ...given.dial, resumeOffer: { halfAtPeer: true, gatewayInstance: '0123456789abcdef' } };
    const fates = async (...running: TunnelInfo[]) => {
      const planned: AdminBackend = {
        ...backend,
        tunnels: () => new Set(running),
        plan: () => ({
          sessions: 2,
          moves: ['stays', 'moves'].map((sessionId, elsewhere) => {
            return { sessionId, tenant: 'default', agentId: 'a', elsewhere };
          }),
          idleMs: 45_000,
        }),
      };
      await using server = await serve({ backend: planned });
      using client = adminClient(at(server));
      return (await client.admin.drain({ dryRun: true })).plan?.fates;
    };
    const hub = { ...given, role: 'hub' } as const;
    assert.deepEqual(
      await fates(
        { ...hub, dial: halves },
        { ...hub, sessionId: 'moves', dial: halves },
        { ...hub, sessionId: 'moves' },
      ),
      ['cut', 'moves', 'cut'],
    );
    const gateway = { ...given, role: 'gateway' } as const;
    const [idle, young] = [45_000, 44_000].map((idleMs) => ({ ...gateway, idleMs }));
    assert.deepEqual(await fates(gateway, idle as TunnelInfo, young as TunnelInfo), ['cut', 'ends', 'cut']);
  });

  it('answers with the reason when the program cannot do something', async () => {
    const failing = {
      ...backend,
      drain() {
        throw new Error('already gone');
      },
    };
    await using server = await serve({ backend: failing });
    using client = adminClient(at(server));
    await assert.rejects(client.admin.drain({}), /already gone/);
    assert.equal((await client.admin.listTunnels({})).tunnels.length, 2);
  });

  it('answers HTTP/1.1 on the same port, even methods that begin like the HTTP/2 preface', async () => {
    await using server = await serve();
    using client = adminClient(at(server));
    await client.admin.listTunnels({});
    assert.equal(await fetchText(server, '/metrics'), 'a page\n');
    const socket = await open(server);
    socket.write('PROPFIND /metrics HTTP/1.1\r\nhost: localhost\r\nConnection: close\r\n\r\n');
    let answer = '';
    for await (const chunk of socket.setEncoding('latin1')) answer += chunk;
    assert.match(answer, /a page\n$/);
  });

  it('tells the protocols apart when bytes arrive one at a time', async () => {
    await using server = await serve();
    const socket = await open(server);
    socket.setNoDelay(true);
    for (const byte of 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n') {
      socket.write(byte);
      await tick();
    }
    // An empty SETTINGS frame. The answer starts with the server's own: length, type 4.
    socket.write(Buffer.from('000000040000000000', 'hex'));
    const [first] = (await once(socket, 'data')) as [Buffer];
    assert.equal(first[3], 4);
    socket.destroy();
  });

  it('closes a connection that sends nothing', async () => {
    await using server = await serve({ headTimeoutMs: 20 });
    const silent = await open(server);
    silent.on('error', () => {});
    silent.resume();
    await once(silent, 'close');
  });

  it('survives garbage', async () => {
    await using server = await serve();
    const garbage = await open(server);
    garbage.on('error', () => {});
    garbage.write(Buffer.alloc(300, 0x16));
    garbage.resume();
    await once(garbage, 'close');
    const broken = await open(server);
    broken.on('error', () => {});
    broken.write(`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${'x'.repeat(300)}`);
    broken.resume();
    await once(broken, 'close');
    assert.equal(await fetchText(server, '/metrics'), 'a page\n');
  });

  it('names the address that it cannot listen on', async () => {
    await using server = await serve();
    const { port } = server.address;
    await assert.rejects(
      serve({ port }),
      new RegExp(`cannot listen on the admin address 127.0.0.1:${port}: .*EADDRINUSE`),
    );
  });

  it('closes while connections are open, more than once', async () => {
    const server = await serve();
    const socket = await open(server);
    socket.on('error', () => {});
    using client = adminClient(at(server));
    await client.admin.listTunnels({});
    const gone = once(socket, 'close');
    socket.resume();
    await Promise.all([server.close(), server.close(), gone]);
  });
});

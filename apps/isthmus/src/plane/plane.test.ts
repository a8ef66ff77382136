import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createSilent } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it, test } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { ISTHMUS } from '../defaults.ts';
import { run } from '../program.ts';
import { TestTerminal } from '../testing/test-terminal.ts';
import { Asker } from './asker.ts';
import { Plane } from './plane.ts';

describe('an address that is no admin port', () => {
  /** What is said of a server that answers everything so. */
  const told = async (status: number, body: string) => {
    await using server = createServer((_, response) => response.writeHead(status, { connection: 'close' }).end(body));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { signal } = new AbortController();
    const met = Plane.meet({ addresses: [address], timeoutMs: 10_000, signal });
    return await met.then(
      () => 'it was met',
      ({ message }: Error) => message.replaceAll(address, 'there'),
    );
  };

  const NO_MEMBER = /^no member answers: there: what answers is no member of a plane: is this its admin port\?/;

  it('is not what a member is called that refuses late', async () => {
    const late = '\n{"code":"unavailable","message":"it stops"}\n';
    assert.match(await told(200, late), /^no member answers: there: it stops\./);
  });

  it('is named, whatever it answers', async () => {
    for (const body of [
      ...['hello', '<html></html>', 'null', '5', '[1]', '{"status":"ok"}', '{"answer":{}}', '{"member":5,"answer":[]}'],
      ...[
        '{"member":{"id":"a"},"answer":{}}',
        '{"member":{"id":"a","roles":[5],"address":"","version":"","zone":""},"answer":{}}',
        '{"member":{"id":5,"roles":[]},"error":{"code":5}}',
      ],
    ])
      assert.match(await told(200, body), NO_MEMBER, body);
    const member = { id: 'a', roles: ['gateway'], address: '', version: '', zone: '' };
    const odd = JSON.stringify({ member, answer: { members: 5 } });
    assert.match(await told(200, odd), /there: its answer cannot be read/);
    assert.match(await told(404, 'not found'), /there: it does not answer for its plane: this is no admin port/);
    for (const body of ['{"code":5}', '{"message":"x"}', 'null'])
      assert.ok((await told(500, body)).includes(`there: ${body}.`), body);
  });

  it('has no clock if its answers have no date', async () => {
    for (const headers of [undefined, { date: 'today' }]) {
      await using server = createServer((_, response) => {
        response.sendDate = false;
        response.writeHead(200, headers).end();
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      using asker = new Asker(`127.0.0.1:${(server.address() as AddressInfo).port}`);
      await assert.rejects(
        asker.clock(AbortSignal.timeout(10_000)),
        /its answer has no date: is this its admin port\?/,
      );
    }
  });
});

describe('a member that hangs', () => {
  it('costs a command one time-out, whatever the command asks', async () => {
    for (const args of [
      ...[['agents'], ['agents', 'a1', '-o', 'yaml'], ['status'], ['hubs'], ['tunnels'], ['events'], ['diag', DIAG]],
      ...[['explain', '10.0.0.1:1'], ['dial', '10.0.0.1:1'], ['check'], ['quarantine', 'a1', '--reason', 'x']],
    ]) {
      for (const hung of ['g2', 'h2']) {
        rmSync(DIAG, { force: true });
        await using plane = await withHung(hung);
        await isthmus(plane.address, ...args);
        assert.deepEqual(plane.askedAgain, [], `isthmus ${args.join(' ')}`);
      }
    }
    rmSync(DIAG, { force: true });
  });

  it('delays no dial through a gateway that answers', async () => {
    await using plane = await withHung('g2');
    await isthmus(plane.address, 'dial', '10.0.0.1:1', '--timeout', '60s');
    assert.deepEqual(plane.dialled, ['g1']);
  });
});

test('a member whose answer has other types than its method is named, and the others are shown', async () => {
  const session = { sessionId: 's', agentId: 'a9', hubId: 'h1' };
  const odd: readonly (readonly [args: readonly string[], answer: Readonly<Record<string, object>>])[] = [
    [['agents'], { ListSessions: { sessions: [session, { ...session, sinceMs: 'long ago' }] } }],
    [['agents', '-o', 'json'], { ListSessions: { sessions: [null] } }],
    [['tunnels'], { ListTunnels: { tunnels: [{ bytesUp: 'many' }] } }],
    [['tenants'], { ListTenants: { tenants: 5 } }],
    [['status'], { GetStatus: { dialRates: [5], startedMs: 'long ago' } }],
    [['events'], { ListEvents: { events: [{ atMs: 1e300 }] } }],
    [['config'], { GetConfig: { flags: {} } }],
  ];
  for (const [args, answers] of odd) {
    await using plane = await withHung('', undefined, answers);
    const { stdout, stderr, status } = await isthmus(plane.address, ...args);
    const said = `${stdout}${stderr}`;
    assert.match(said, /h1\b.*its answer cannot be read/s, `isthmus ${args.join(' ')}: ${said}`);
    assert.equal((said.match(/cannot be read/g) ?? []).length, 1, said);
    assert.notEqual(status, 0, said);
  }
});

test('what nobody tells is not said to be missing in the plane', async () => {
  for (const [args, method] of [
    [['agents'], 'ListSessions'],
    [['agents', '--sessions'], 'ListSessions'],
    [['tunnels'], 'ListTunnels'],
    [['tenants'], 'ListTenants'],
    [['check', '--no-dials'], 'ListSessions'],
  ] as const) {
    await using plane = await withHung('', undefined, { [method]: { sessions: 5, tunnels: 5, tenants: 5 } }, true);
    const { stdout, status } = await isthmus(plane.address, ...args);
    assert.doesNotMatch(stdout, /No agent has|no agent has|No tenant|[Nn]o tunnel|None/, `isthmus ${args.join(' ')}`);
    assert.equal(status, args[0] === 'check' ? 1 : 3, stdout);
  }
});

test('texts and numbers of a member are shown as what its method says they are', async () => {
  for (const [args, method, answer] of [
    [['tunnels'], 'ListTunnels', { tunnels: [{ dialId: 99, tenant: true, agentId: -1, destination: 5 }] }],
    [['agents', '-o', 'wide'], 'ListSessions', { sessions: [{ sessionId: 1, agentId: 99, hubId: true, tenant: {} }] }],
    [['dial', 'a:1'], 'Dial', { dial: { ms: '3' }, phases: [{ depth: 4e9, detail: 0, ms: '1' }, { ms: [] }] }],
    [['events'], 'ListEvents', { events: [{ type: '1', id: 7 }, { type: 99 }, { type: null }] }],
  ] as const) {
    await using plane = await withHung('', undefined, { [method]: answer });
    await isthmus(plane.address, ...args);
  }
});

test('isthmus check asks a bounded number of agents for their clocks, and has one time-out for all that hang', async () => {
  const agents = Array.from({ length: 5000 }, (_, n) => ({
    ...{ sessionId: `${n}`, tenant: 'default', agentId: `a${n}`, hubId: 'h2', protocol: 1 },
    suspected: n % 2 === 0,
  }));
  await using plane = await withHung('', agents);
  const { stdout } = await isthmus(plane.address, 'check', '--no-dials');
  assert.match(stdout, /ok {4}clocks +members: within /);
  assert.equal(plane.agents.length, ISTHMUS.checkClocks);
  assert.deepEqual(
    plane.agents.filter((id) => Number(id.slice(1)) % 2 === 0),
    [],
  );
  assert.ok(plane.waitedMs < 200, `${plane.waitedMs} ms`);
});

const DIAG = join(tmpdir(), `isthmus-plane-test-${process.pid}.tar.gz`);

async function isthmus(address: string, ...args: readonly string[]) {
  const terminal = new TestTerminal(['--address', address, '--timeout', '100ms', ...args]);
  return Object.assign(terminal, { status: await run(terminal) });
}

const ROLES: Readonly<Record<string, 'gateway' | 'hub'>> = { g: 'gateway', h: 'hub' };

/**
 * The admin port of g1, which answers for g1, g2, h1 and h2, one of which hangs. No agent of theirs serves anything.
 * @param odd what h1 answers, and g1 where it dials, by the method
 * @param allOdd whether the others answer the same
 */
async function withHung(
  hung: string,
  sessions: readonly object[] = ['a1', 'a2'].map((agentId) => ({ sessionId: agentId, agentId, hubId: 'h2' })),
  odd: Readonly<Record<string, object>> = {},
  allOdd = false,
) {
  const members = ['g1', 'g2', 'h1', 'h2'].map((id) => {
    return { id, roles: [ROLES[id[0] as string] as string], address: '', version: '', zone: '' };
  });
  const seen = { askedAgain: [] as string[], dialled: [] as string[], agents: [] as string[], waitedMs: 0 };
  let over = false;
  // The kernel accepts connections for it.
  const silent = createSilent(() => over && seen.askedAgain.push('a port'));
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  const placeOf = (id: string) => (id === hung ? `127.0.0.1:${(silent.address() as AddressInfo).port}` : '');
  const list = {
    members: members.map(({ id, roles }) => {
      return { memberId: id, roles: [roles[0] === 'hub' ? 2 : 1], adminAddress: placeOf(id) };
    }),
    hubs: ['h1', 'h2'].map((hubId) => {
      return { hubId, link: 2, peerAddress: placeOf(hubId), agentAddress: placeOf(hubId) };
    }),
  };
  const answers: Readonly<Record<string, object>> = {
    ListMembers: list,
    ListSessions: { sessions },
    GetStatus: { nowMs: Date.now() },
    Dial: { dial: { error: { code: 'connection_refused', text: '' } } },
  };
  const server = createServer(async (request, response) => {
    const { method, members: to, roles, agent, timeoutMs } = JSON.parse(await text(request));
    const late = async () => {
      await setTimeout(timeoutMs, undefined, { ref: false });
      // What was asked before may be on its way, if this process stood still.
      for (let turn = 0; turn < 20; turn++) await setImmediate();
      over = true;
    };
    if (agent) {
      seen.agents.push(agent.id);
      seen.waitedMs = Math.max(seen.waitedMs, timeoutMs);
      // It hangs, or its hub does.
      if (over) seen.askedAgain.push(`${method} of ${agent.id}`);
      await late();
      return response.end();
    }
    const ids: string[] = to?.length === 0 ? ['g1'] : to;
    const asked = members.filter(({ id, roles: [role] }) => (ids ? ids.includes(id) : !roles || roles.includes(role)));
    const silent = asked.filter(({ id }) => id === hung);
    if (over) seen.askedAgain.push(...silent.map(({ id }) => `${method} of ${id}`));
    for (const member of asked.filter((each) => !silent.includes(each))) {
      if (method === 'Dial') seen.dialled.push(member.id);
      const isOdd = allOdd || member.id === 'h1' || method === 'Dial';
      const answer = (isOdd && odd[method]) || (answers[method] ?? {});
      response.write(`${JSON.stringify({ member, answer })}\n`);
    }
    if (silent.length > 0) await late();
    const error = { code: 'unavailable', message: 'no answer' };
    return response.end(silent.map((member) => `${JSON.stringify({ member, error })}\n`).join(''));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return Object.assign(seen, {
    address,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      silent.close();
    },
  });
}

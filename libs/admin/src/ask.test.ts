import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import type { Ask, Question } from '@isthmus/tunnel';
import { AskPage } from './ask.ts';
import type { PlanePart } from './calls/members.ts';
import { ADMIN } from './defaults.ts';
import type { AdminServer } from './server.ts';
import { aPort, idleBackend } from './testing/backend.ts';

const member = (memberId: string, adminAddress: string, since: number, host = 'elsewhere') => {
  return { memberId, roles: ['gateway' as const], adminAddress, host, version: '1', zone: '', since };
};

const plane: PlanePart = {
  registry: { synced: true, up: true, detail: '', lastAnswerAt: undefined },
  members: async () => [],
  lastMembers: () => [
    member('g1', '10.0.0.1:8095', 30),
    member('dead', '10.0.0.1:8095', 10),
    member('g2', '127.0.0.1:8095', 20),
    member('g3', '127.0.0.1:8095', 10),
  ],
  hubs: () => [{ hubId: 'h1', peerAddress: '', agentAddress: '', zone: 'a', draining: false, incarnation: 1 }],
  linkTo: () => 'none',
  rttTo: () => undefined,
  failureOf: (id) => (id === 'h2' ? { error: new Error('hub h2: silent for 5 s'), at: 1 } : undefined),
};

async function post({ address: { port } }: Pick<AdminServer, 'address'>, question: object, signal?: AbortSignal) {
  return fetch(`http://127.0.0.1:${port}/ask`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
    ...(signal && { signal }),
  });
}

async function lines(response: Response) {
  const text = await response.text();
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
}

test('all members are asked at once: listed ones, linked hubs, and of two at one address the later', async () => {
  const asked: Question[] = [];
  const ask: Ask = async function* (question) {
    asked.push(question);
    yield { answer: { memberId: 'member' in question.to ? question.to.member : '' } };
  };
  await using server = await aPort({ backend: idleBackend({ plane, ask }) });
  const found = await lines(await post(server, { method: 'GetStatus' }));
  const ids = found.map((line) => line.answer.memberId).sort();
  assert.deepEqual(ids, ['g1', 'g2', 'g3', 'h1', 'm1']);
  assert.ok(asked.every(({ reads, operator }) => reads && operator.tenant === undefined));
  const hubs = await lines(await post(server, { method: 'Drain', roles: ['hub'] }));
  assert.deepEqual(
    hubs.map((line) => line.member.id),
    ['m1', 'h1'],
  );
  assert.equal(asked.at(-1)?.reads, false);
});

test('who fails or is late has a line with the reason, and the others answer', async () => {
  const ask: Ask = async function* ({ to }, signal) {
    const id = 'member' in to ? to.member : to.agent;
    if (id === 'g1') throw new Error('g1 has no link');
    if (id === 'h2') throw new Error('h1 has no link to h2');
    if (id === 'h3') return;
    if (id === 'g2') await once(signal, 'abort').then(() => signal.throwIfAborted());
    yield { answer: {} };
  };
  await using server = await aPort({ backend: idleBackend({ plane, ask }) });
  const members = ['g1', 'g2', 'h1', 'h2', 'h3'];
  const found = await lines(await post(server, { method: 'GetStatus', members, timeoutMs: 50 }));
  const of = new Map(found.map((line) => [line.member.id, line.error?.message ?? 'answered']));
  assert.deepEqual(Object.fromEntries(of), {
    g1: 'g1 has no link',
    g2: 'no answer within 0.05 s: it hangs, or the network drops packets',
    h1: 'answered',
    // Why this member has no link itself.
    h2: 'hub h2: silent for 5 s',
    h3: 'it ended its answer before it had said anything',
  });
});

test('a time-out may be a part of a millisecond, and one that has answered is not late', async () => {
  const ask: Ask = async function* (_, signal) {
    yield { answer: {} };
    await once(signal, 'abort').then(() => signal.throwIfAborted());
  };
  await using server = await aPort({ backend: idleBackend({ plane, ask }) });
  const found = await lines(await post(server, { method: 'GetStatus', members: ['g2'], timeoutMs: 20.5 }));
  assert.deepEqual(
    found.map(({ answer, error }) => [typeof answer, error]),
    [['object', undefined]],
  );
});

test('what a process answers has the types of its method, or is an error: who asks it for its own life reads it', async () => {
  const answers: readonly (readonly [answer: unknown, read: unknown])[] = [
    [{ agentId: 5, ready: 'yes', invented: [] }, '5 true'],
    [{ agentId: null, uptimeMs: null }, '- false'],
    [{ notices: 5 }, UNREAD],
    [{ notices: [5, null] }, UNREAD],
    [{ startedMs: 1e300 }, UNREAD],
    [{ startedMs: 'long ago' }, UNREAD],
    [{ tunnels: -1.5 }, UNREAD],
    ['text', UNREAD],
    [JSON.parse(`{"checks":${'['.repeat(9000)}${']'.repeat(9000)}}`), '- false'],
  ];
  for (const [answer, read] of answers) {
    const ask: Ask = async function* () {
      yield { answer };
    };
    await using server = await aPort({ backend: idleBackend({ plane, ask }) });
    const [line] = await lines(await post(server, { method: 'GetStatus', agent: { id: 'agent-1' } }));
    const { agentId, ready, invented } = line.answer ?? {};
    const shown = line.error?.message ?? `${agentId || '-'} ${ready}`;
    assert.deepEqual([shown, invented], [read, undefined], JSON.stringify(answer).slice(0, 60));
  }
});

const UNREAD = 'its answer cannot be read';

test('a request that is at fault is refused by what is wrong', async () => {
  await using server = await aPort({ backend: idleBackend() });
  for (const [question, fault] of [
    [{}, /method: a name of the admin RPC/],
    [{ method: 'Nope' }, /the admin RPC has no method Nope/],
    [{ method: 'GetStatus', members: 'all' }, /members: a list of at most 1000 ids/],
    [{ method: 'GetStatus', roles: [1] }, /roles: a list of/],
    [{ method: 'GetStatus', timeoutMs: -1 }, /timeoutMs: a number above 0/],
    [{ method: 'GetStatus', agent: { id: 7 } }, /agent: \{"tenant"/],
    [[], /method: a name/],
  ] as const) {
    const response = await post(server, question);
    assert.match((await response.json()).message, fault);
    assert.ok(response.status >= 400);
  }
  const got = await fetch(`http://127.0.0.1:${server.address.port}/ask`);
  assert.equal(got.status, 400);
});

test('so many questions are open at once, and no more', async () => {
  let open = 0;
  const ask: Ask = async function* (_question, signal) {
    open++;
    await once(signal, 'abort');
    yield { answer: {} };
  };
  await using server = await aPort({ backend: idleBackend({ plane, ask }) });
  const end = new AbortController();
  const question = { method: 'WatchDials', members: ['g1'] };
  const waiting = Array.from({ length: ADMIN.asksOfTenant }, () => post(server, question, end.signal).catch(() => {}));
  await until(() => open === ADMIN.asksOfTenant, { what: 'open questions' });
  const refused = await post(server, question);
  assert.deepEqual([refused.status, /32 questions are open/.test(await refused.text())], [429, true]);
  end.abort();
  await Promise.all(waiting);
  await until(async () => (await post(server, { ...question, method: 'GetStatus', timeoutMs: 1 })).status === 200, {
    what: 'room for another',
  });
});

/** Serves `POST /ask` to an operator of tenant acme. */
async function ofTenant(turn: (tenant: string, bytes: number) => number) {
  let asked = 0;
  const ask: Ask = async function* () {
    asked++;
    yield { answer: {} };
  };
  const page = new AskPage(idleBackend({ plane, ask }), { turn });
  const visitor = { operator: { identity: 'alice', remote: '10.0.0.1:1', tenant: 'acme' } };
  const server = createServer((request, response) => void page.serve(request, response, visitor));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    address: server.address() as AddressInfo,
    asked: () => asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

test("a tenant's question takes a turn for what it sends, and one for what its members cost beyond that", async () => {
  const turns: [string, number][] = [];
  await using server = await ofTenant((...turn) => {
    turns.push(turn);
    return 0;
  });
  const questions = [
    { method: 'GetStatus', members: ['g1', 'g2', 'h1'] },
    { method: 'GetStatus', members: [] },
    { method: 'GetStatus', members: [], padding: 'x'.repeat(ADMIN.askBytes) },
  ];
  for (const question of questions) await lines(await post(server, question));
  const [three = 0, one = 0, long = 0] = questions.map((question) => JSON.stringify(question).length);
  assert.deepEqual(turns, [
    ['acme', three],
    ['acme', 3 * ADMIN.askBytes - three],
    ['acme', one],
    ['acme', ADMIN.askBytes - one],
    ['acme', long],
    ['acme', 0],
  ]);
});

test('what is no question takes a turn too, before it is read, for as much as it may send', async () => {
  const turns: number[] = [];
  const waiting = Promise.withResolvers<void>();
  await using server = await ofTenant((_tenant, bytes) => {
    if (turns.push(bytes) === 3) waiting.resolve();
    return turns.length > 2 ? 2 ** 30 : 0;
  });
  const junk = { padding: 'x'.repeat(60_000) };
  assert.equal((await post(server, junk)).status, 400);
  assert.equal((await post(server, { padding: 'x'.repeat(2 * ADMIN.bodyBytes) })).status, 429);
  const gone = new AbortController();
  const unread = post(server, junk, gone.signal);
  await waiting.promise;
  gone.abort();
  await assert.rejects(unread, { name: 'AbortError' });
  const { length } = JSON.stringify(junk);
  assert.deepEqual(turns, [length, ADMIN.bodyBytes, length]);
});

test("a tenant's question waits for its turn, and one whose asker leaves is never asked", async () => {
  const waiting = Promise.withResolvers<void>();
  await using server = await ofTenant(() => {
    waiting.resolve();
    return 2 ** 30;
  });
  const gone = new AbortController();
  const answer = post(server, { method: 'GetStatus' }, gone.signal).then((response) => response.text());
  await waiting.promise;
  gone.abort();
  await assert.rejects(answer, { name: 'AbortError' });
  assert.equal(server.asked(), 0);
});

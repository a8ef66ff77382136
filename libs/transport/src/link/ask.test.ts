import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { type Ask, planeEvents, type Question } from '@isthmus/tunnel';
import { Allowance } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { cleanups } from '../testing/cleanups.ts';
import { Asks } from './ask.ts';
import { LinkClient } from './client.ts';
import { http2Link } from './link.ts';
import { link, listen, request } from './testing.ts';

const QUESTION: Question = {
  to: { member: 'h1' },
  method: 'GetStatus',
  message: { a: 'ä' },
  reads: true,
  operator: { identity: 'alice', remote: '10.0.0.1' },
};

const nobody = () => Promise.reject(new Error('nobody dials here'));

async function all(answers: AsyncIterable<unknown>): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const answer of answers) found.push(answer);
  return found;
}

const echo: Ask = async function* (question) {
  yield question;
  yield { last: true };
};

const never = new AbortController().signal;

test('each side of a link asks the other, and the answers are its own', async () => {
  const member = { id: 'gw ä', answer: echo };
  const { client, server } = await link(nobody, { member }, { answer: echo });
  assert.deepEqual(await all(client.ask(QUESTION, never)), [QUESTION, { last: true }]);
  await until(() => server.memberId === 'gw ä', 'the name of the member');
  const both = [all(server.ask(QUESTION, never)), all(server.ask({ ...QUESTION, method: 'B' }, never))];
  assert.deepEqual(await Promise.all(both), [
    [QUESTION, { last: true }],
    [{ ...QUESTION, method: 'B' }, { last: true }],
  ]);
});

test('a link goes on beside questions, and one that leaves still answers', async () => {
  const { client, server } = await link(nobody, { member: { id: 'g', answer: echo } }, { answer: echo });
  await all(client.ask(QUESTION, never));
  const held = client.ask({ ...QUESTION, method: 'Held' }, never);
  server.drain();
  assert.deepEqual(await all(held), [{ ...QUESTION, method: 'Held' }, { last: true }]);
});

test('a question that nobody waits for any more is cancelled at the other side', async () => {
  const cancelled = Promise.withResolvers<void>();
  const answer: Ask = async function* (_question, signal) {
    yield { first: true };
    await once(signal, 'abort');
    cancelled.resolve();
  };
  const { client } = await link(nobody, { to: 'agent' }, { answer });
  for await (const first of client.ask(QUESTION, never)) {
    assert.deepEqual(first, { first: true });
    break;
  }
  await cancelled.promise;
  const gone = new AbortController();
  const waiting = all(client.ask(QUESTION, gone.signal));
  gone.abort(new Error('given up'));
  await assert.rejects(waiting, /given up/);
});

test('the stream of questions to an agent ends with the last answer, also if the agent does not end it', async () => {
  const ended = Promise.withResolvers<void>();
  const stranger = net.createServer((socket) => {
    http2Link('server', socket, 'hub').on('stream', (stream, head) => {
      stream.on('error', () => {}).respond({ ':status': 200 });
      if (head[':path'] !== '/ask') return;
      stream.once('data', () => stream.write('{"of":1,"answer":7}\n{"of":1,"end":""}\n')).on('close', ended.resolve);
    });
  });
  const socket = net.connect(await listen(stranger), '127.0.0.1');
  await once(socket, 'connect');
  const client = new LinkClient({ socket, peer: 'agent a1', to: 'agent', events: planeEvents() });
  cleanups.push(() => client.destroy(new Error('test over')));
  assert.deepEqual(await all(client.ask(QUESTION, never)), [7]);
  await ended.promise;
});

test('a fault, a version without questions and the end of the link each end a question with their reason', async () => {
  const failing: Ask = async function* () {
    yield { first: true };
    throw new Error('it broke');
  };
  const one = await link(nobody, { to: 'agent' }, { answer: failing });
  await assert.rejects(all(one.client.ask(QUESTION, never)), /^Error: it broke$/);
  // The stream of an agent ends with its last answer, and the next question opens another.
  await assert.rejects(all(one.client.ask(QUESTION, never)), /^Error: it broke$/);
  const old = await link(nobody, { to: 'agent' });
  await assert.rejects(
    all(old.client.ask(QUESTION, never)),
    /^Error: agent a1: it runs a version that takes no questions$/,
  );
  const silent = await link(
    nobody,
    { to: 'agent' },
    {
      answer: async function* (_question, signal) {
        await once(signal, 'abort');
        yield 0;
      },
    },
  );
  const waiting = all(silent.client.ask(QUESTION, never));
  silent.server.destroy(new Error('agent stops'));
  await assert.rejects(waiting, /^Error: agent a1: /);
});

test('a gateway opens its stream of questions again after it broke, so that its hub can ask', async () => {
  using _ = changed(TRANSPORT, { asksAgainMs: 50 });
  const { client, server } = await link(nobody, { member: { id: 'g1', answer: echo } }, { answer: echo });
  await until(() => server.memberId === 'g1', 'the name of the member');
  // A line that is longer than a side takes ends the stream.
  const long = { ...QUESTION, message: { a: 'x'.repeat(TRANSPORT.memberAnswerBytes) } };
  await assert.rejects(all(client.ask(long, never)));
  const answered = async () => {
    if (server.memberId === '') return false;
    const found = await all(server.ask(QUESTION, never)).catch(() => []);
    return found.length === 2;
  };
  await until(answered, 'an answer over another stream');
});

test('a gateway does not open its stream of questions again on a link that leaves', async () => {
  using _ = changed(TRANSPORT, { asksAgainMs: 50 });
  const arrived = Promise.withResolvers<void>();
  const hangs = () => {
    arrived.resolve();
    return new Promise<never>(() => {});
  };
  const { client, server } = await link(hangs, { member: { id: 'g1', answer: echo } }, { answer: echo });
  await all(client.ask(QUESTION, never));
  // It keeps the link open. A link that has ended says why.
  await Promise.race([
    arrived.promise,
    client.dial(request(1)),
    client.closed.then((reason) => Promise.reject(reason)),
  ]);
  const thrown: string[] = [];
  const hear = ({ message }: Error) => void thrown.push(message);
  process.on('uncaughtException', hear);
  try {
    const long = { ...QUESTION, message: { a: 'x'.repeat(TRANSPORT.memberAnswerBytes) } };
    await assert.rejects(all(client.ask(long, never)));
    server.close();
    await until(() => !client.usable, 'the goodbye');
    // Timers of one length end in the order in which they began.
    await new Promise((resolve) => setTimeout(resolve, TRANSPORT.asksAgainMs));
  } finally {
    process.off('uncaughtException', hear);
  }
  assert.deepEqual(thrown, []);
});

test('what the other side sends is bounded', async () => {
  const hear = async (...lines: string[]) => {
    const stream = new PassThrough();
    new Asks(stream, { peer: 'agent a1', answer: echo, lineBytes: 100, sendBytes: 100 });
    const broken = new Promise<string>((resolve) => stream.once('error', ({ message }) => resolve(message)));
    for (const line of lines) stream.write(line);
    return broken;
  };
  const fault = /it breaks the protocol of questions/;
  assert.match(await hear('x'.repeat(101)), fault);
  assert.match(await hear(`{"ask":1,"question":"${'x'.repeat(100)}"}\n`), fault);
  assert.match(await hear('no JSON\n'), fault);
});

test('an answer that the other side would not take ends its own question alone, in whatever script it is', async () => {
  const answer: Ask = async function* () {
    yield 'é'.repeat(TRANSPORT.agentAnswerBytes * 0.75);
  };
  const { client } = await link(nobody, { to: 'agent' }, { answer });
  await assert.rejects(all(client.ask(QUESTION, never)), /^Error: the answer is longer than 65536 bytes$/);
});

test('a side answers so many questions at once, and keeps so many unread answers', async () => {
  const answer: Ask = async function* (_question, signal) {
    await once(signal, 'abort');
    yield 0;
  };
  const { client } = await link(nobody, { to: 'agent' }, { answer });
  const open = new AbortController();
  const asked = Array.from({ length: TRANSPORT.asks }, () => client.ask(QUESTION, open.signal));
  assert.throws(() => client.ask(QUESTION, open.signal), /512 questions wait for agent a1/);
  const ended = Promise.allSettled(asked.map(all));
  open.abort();
  await ended;
  const chatty = await link(
    nobody,
    { to: 'agent' },
    {
      answer: async function* () {
        for (let sent = 0; sent < 2 * TRANSPORT.answersUnread; sent++) yield sent;
      },
    },
  );
  const unread = chatty.client.ask(QUESTION, never) as AsyncIterable<unknown> & { readonly destroyed: boolean };
  await until(() => unread.destroyed, 'the end of a question whose answers nobody reads');
  await assert.rejects(all(unread), /read too slowly/);
});

test('what an agent answers is of the budget of its tenant', async () => {
  const allowance = new Allowance({ atOnce: 50, perSecond: 0 });
  const answer: Ask = async function* () {
    for (let sent = 0; sent < 100; sent++) yield sent;
  };
  const { client } = await link(nobody, { to: 'agent', allowance }, { answer });
  await assert.rejects(all(client.ask(QUESTION, never)), /^Error: agent a1: it breaks the protocol of questions$/);
});

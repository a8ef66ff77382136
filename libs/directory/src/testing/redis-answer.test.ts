import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { ask } from './redis-answer.ts';

const patience = () => AbortSignal.timeout(60_000);

/** A server that gives each command the chunks of its next answer, all in one turn, and then ends if it has no more answers. */
function server(...answers: readonly (readonly string[])[]): Duplex & { readonly asked: string[] } {
  const left = [...answers];
  const asked: string[] = [];
  const stream = new Duplex({
    read() {},
    write(line, _encoding, done) {
      asked.push(String(line));
      const chunks = left.shift();
      setImmediate(() => {
        for (const chunk of chunks ?? []) stream.push(chunk);
        if (!chunks) stream.push(null);
      });
      done();
    },
  });
  return Object.assign(stream, { asked });
}

test('an answer whose chunks come in one turn is read whole', async () => {
  assert.equal(await ask(server(['$10\r\n', 'role:', 'maste', '\r\n']), ['INFO'], patience()), 'role:maste');
  assert.equal(await ask(server(['+PO', 'NG\r', '\n']), ['PING'], patience()), '+PONG');
});

test('the length of an answer counts bytes, and a character may be cut in two', async () => {
  const [head, tail] = [Buffer.from('$4\r\né'), Buffer.from('é\r\n')];
  const split = server([]);
  const answer = ask(split, ['GET x'], patience());
  split.push(head.subarray(0, -1));
  split.push(Buffer.concat([head.subarray(-1), tail]));
  assert.equal(await answer, 'éé');
});

test('each command waits for the answer to the one before, and the last answer counts', async () => {
  const redis = server(['+OK', '\r\n'], ['$-1\r\n'], [':2\r\n']);
  assert.equal(await ask(redis, ['AUTH a', 'GET b', 'DBSIZE'], patience()), ':2');
  assert.deepEqual(redis.asked, ['AUTH a\r\n', 'GET b\r\n', 'DBSIZE\r\n']);
});

test('a connection that ends in the middle of an answer is an error at once', async () => {
  const redis = server(['$10\r\nhalf']);
  const answer = ask(redis, ['INFO'], patience());
  setImmediate(() => setImmediate(() => redis.push(null)));
  await assert.rejects(answer, /closed the connection before its whole answer came: \$10\r\nhalf$/);
});

test('the deadline ends the wait', async () => {
  const late = new AbortController();
  const answer = ask(server([]), ['INFO'], late.signal);
  setImmediate(() => late.abort(new Error('too late')));
  await assert.rejects(answer, { name: 'AbortError' });
});

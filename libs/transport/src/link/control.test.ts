import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { Control, type ControlMessage } from './control.ts';

/** What becomes of these lines from the other side. */
async function hear(...lines: (string | Buffer)[]) {
  const stream = new PassThrough();
  const heard: ControlMessage[] = [];
  const refused: string[] = [];
  const failed: string[] = [];
  new Control(stream, {
    receive: (message) => heard.push(message),
    refused: ({ message }) => refused.push(message),
    fault: assert.ifError,
    fail: ({ message }) => failed.push(message),
  });
  for (const line of lines) stream.write(line);
  stream.end();
  await once(stream, 'end');
  return { heard, refused, failed };
}

test('messages that another version writes otherwise are passed over, and the link goes on', async () => {
  const lines = [
    '{"type":"membership","hubs":"all"}',
    '{"type":"membership-change","current":true}',
    '{"type":"held","streams":[-1]}',
    '{"type":"lacking"}',
    '{"type":"policy","deny":"all"}',
    '{"type":"hung-up","gateway":"all"}',
    '{"type":"hung-up","gateway":["0123456789abcdef"]}',
  ];
  const { heard, refused, failed } = await hear(...lines.map((line) => `${line}\n`), '{"type":"drain"}\n');
  assert.deepEqual(heard, [{ type: 'drain' }]);
  assert.deepEqual(
    refused,
    lines.map((line) => `bad control message ${JSON.stringify(line)}`),
  );
  assert.deepEqual(failed, []);
});

test('a token that cannot be read is not told', async () => {
  const { heard, refused } = await hear(
    `{"type":"credential","token":["s3cret"]}\n`,
    '{"type":"credential","token":""}\n',
  );
  assert.deepEqual([heard, refused], [[], Array(2).fill('bad control message "credential"')]);
  const token = 'x'.repeat(16 * 1024);
  assert.deepEqual((await hear(`{"type":"credential","token":"${token}"}\n`)).heard, [{ type: 'credential', token }]);
  assert.deepEqual((await hear(`{"type":"credential","token":"${token}x"}\n`)).heard, []);
});

test('what is no message, or outgrows one, ends the link', async () => {
  for (const line of ['nonsense\n', '7\n', 'null\n', '{"dial":"x"}\n', 'x'.repeat(256 * 1024 + 1)]) {
    const { heard, refused, failed } = await hear(line);
    assert.deepEqual([heard, refused, failed.length], [[], [], 1], line.slice(0, 20));
  }
});

test('a message is the same wherever it is cut, also amid a letter', async () => {
  const hub = { hubId: 'h', address: '', zone: 'zürich', draining: false, generation: 0 };
  const text = `{"type":"membership","current":true,"hubs":[${JSON.stringify(hub)}]}\n{"type":"drain"}\n`;
  const wanted = [{ type: 'membership', current: true, hubs: [hub] }, { type: 'drain' }];
  const bytes = Buffer.from(text);
  for (let at = 1; at < bytes.length; at++) {
    const { heard } = await hear(bytes.subarray(0, at), bytes.subarray(at));
    assert.deepEqual(heard, wanted, `cut at ${at}`);
  }
});

test('nothing is heard behind what ends the link', async () => {
  const { heard, failed } = await hear('nonsense\n{"type":"drain"}\n');
  assert.deepEqual([heard, failed.length], [[], 1]);
});

test('a flood of messages ends the link once its allowance is used up, long messages sooner', async () => {
  for (const [hubs, most] of [
    [0, 1_000],
    [100, 250],
  ] as const) {
    const since = performance.now();
    const hub = { hubId: 'h', address: 'h:1', zone: '', draining: false, generation: 0 };
    const message = { type: 'membership', current: true, hubs: Array.from({ length: hubs }, () => hub) };
    const { heard, failed } = await hear(`${JSON.stringify(message)}\n`.repeat(3_000));
    assert.match(String(failed), /^more control messages than 1000 at once/);
    assert.ok(heard.length <= most + (performance.now() - since) / 10, `${heard.length}`);
    assert.ok(heard.length > most / 2, `${heard.length}`);
  }
});

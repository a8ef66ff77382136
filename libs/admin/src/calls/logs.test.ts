import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { asking, idleBackend } from '../testing/backend.ts';
import { type LogPart, setLogLevel } from './logs.ts';

function aLog(...lines: string[]): LogPart {
  const levelOf = (verbosity: number) => (verbosity > 4 ? 'debug' : 'info');
  return { info() {}, level: 'info', levelOf, recent: Object.assign(lines, { forgotten: 3 }) };
}

test('the log level changes by name and by number, and an empty one only reads it', async () => {
  const log = aLog();
  await using client = await asking({ log });
  const { setLogLevel } = client.admin;
  const rest = { untilMs: undefined, revertsTo: '' };
  assert.deepEqual(await setLogLevel({ level: 'WARN' }), { level: 'warn', previous: 'info', ...rest });
  assert.deepEqual(await setLogLevel({ level: '6' }), { level: 'debug', previous: 'warn', ...rest });
  assert.deepEqual(await setLogLevel({}), { level: 'debug', previous: 'debug', ...rest });
  assert.equal(log.level, 'debug');
});

test('a temporary level reverts to the original one, even after another temporary level', async (t: TestContext) => {
  const log = aLog();
  await using client = await asking({ log });
  const { setLogLevel } = client.admin;
  await setLogLevel({});
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.after(() => t.mock.timers.reset());
  const since = Date.now();
  const first = await setLogLevel({ level: 'trace', durationMs: 60_000 });
  assert.deepEqual([first.level, first.revertsTo], ['trace', 'info']);
  const setAt = (first.untilMs ?? 0) - 60_000;
  assert.ok(since <= setAt && setAt <= Date.now(), `${first.untilMs}`);
  const second = await setLogLevel({ level: 'debug', durationMs: 90_000 });
  assert.deepEqual([second.previous, second.revertsTo], ['trace', 'info']);
  t.mock.timers.tick(89_999);
  assert.equal(log.level, 'debug');
  t.mock.timers.tick(1);
  assert.equal(log.level, 'info');
  await setLogLevel({ level: 'trace', durationMs: 1000 });
  assert.equal((await setLogLevel({ level: 'error' })).untilMs, undefined);
  t.mock.timers.tick(5000);
  assert.equal(log.level, 'error', 'a level that was set for good stays');
});

test('a temporary level of one visitor is seen and ended by another', async (t: TestContext) => {
  const log = aLog();
  const part = { log };
  const [one, other] = [idleBackend(part), idleBackend(part)];
  const { signal } = new AbortController();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.after(() => t.mock.timers.reset());
  await setLogLevel(one, { level: 'trace', durationMs: 60_000 }, { signal, principal: undefined });
  assert.equal(
    (await setLogLevel(other, { level: '', durationMs: 0 }, { signal, principal: undefined })).revertsTo,
    'info',
  );
  await setLogLevel(other, { level: 'error', durationMs: 0 }, { signal, principal: undefined });
  t.mock.timers.tick(60_000);
  assert.equal(log.level, 'error');
});

test('an invalid level or duration is rejected', async () => {
  await using client = await asking({ log: aLog() });
  const { setLogLevel, recentLogs } = client.admin;
  await assert.rejects(
    setLogLevel({ level: 'loud' }),
    /INVALID_ARGUMENT: unknown level "loud": want one of trace, debug/,
  );
  await assert.rejects(setLogLevel({ level: 'info', durationMs: 9e7 }), /duration_ms is 90000000: want 0 to 86400000/);
  await assert.rejects(setLogLevel({ durationMs: 5 }), /duration_ms is set without level/);
  await assert.rejects(recentLogs({ level: 'loud' }), /INVALID_ARGUMENT/);
});

test('recent lines are selected by level and number, the latest ones', async () => {
  const lines = ['debug', 'info', 'warn', 'info', 'error'].map((level, index) => `{"level":"${level}","n":${index}}`);
  await using client = await asking({ log: aLog(...lines) });
  const { recentLogs } = client.admin;
  const numbers = async (request: Parameters<typeof recentLogs>[0]) =>
    (await recentLogs(request)).lines.map((line) => JSON.parse(line).n);
  assert.deepEqual(await numbers({}), [0, 1, 2, 3, 4]);
  assert.deepEqual(await numbers({ limit: 2 }), [3, 4]);
  assert.deepEqual(await numbers({ level: 'warn' }), [2, 4]);
  assert.deepEqual(await numbers({ level: 'INFO', limit: 3 }), [2, 3, 4]);
  assert.equal((await recentLogs({})).forgotten, 3);
});

test('a level change leaves a line that the old or the new level lets through', async () => {
  const lines: unknown[] = [];
  const log = aLog();
  const info = (fields: object, message: string) => void lines.push([log.level, message, fields]);
  await using client = await asking({ log: Object.assign(log, { info }) });
  await client.admin.setLogLevel({ level: 'warn' });
  await client.admin.setLogLevel({ level: 'debug' });
  const message = 'operator set the log level';
  assert.deepEqual(lines, [
    ['info', message, { from: 'info', to: 'warn' }],
    ['debug', message, { from: 'warn', to: 'debug' }],
  ]);
});

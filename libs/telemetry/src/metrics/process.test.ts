import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gauge, Histogram, Registry } from 'prom-client';
import { TEXT } from './exposition.ts';
import { Families } from './families.ts';
import { eventLoopDelay, processFamilies } from './process.ts';
import { agent, beginning, server } from './testing.ts';

test('every value of the first page is a finite number', async () => {
  const families = await processFamilies()();
  assert.ok(families.some(({ name }) => name === 'process_cpu_seconds_total'));
  for (const { name, samples } of families) {
    for (const { value } of samples) assert.ok(Number.isFinite(value), `${name} is ${value}`);
    assert.ok(!name.startsWith('nodejs_eventloop_lag'), `${name}: isthmus_event_loop_delay_seconds tells it`);
  }
});

test('if process metrics cannot be loaded, the page lacks them and the next page has them', async () => {
  const loads = [
    () => Promise.reject(new Error('EMFILE: too many open files')),
    () => Promise.resolve(withGauge('process_open_fds')),
  ];
  const read = processFamilies(() => loads.shift()!());
  assert.deepEqual(await read(), []);
  for (const page of [await read(), await read()]) {
    assert.deepEqual(
      page.map(({ name }) => name),
      ['process_open_fds'],
    );
  }
});

test("the library's histograms are shown as it shows them itself", async () => {
  const registry = new Registry();
  const labelled = { labelNames: ['kind'], buckets: [0.001, 1], registers: [registry] };
  const pauses = new Histogram({ name: 'gc_seconds', help: 'Garbage collections.', ...labelled });
  pauses.observe({ kind: 'minor' }, 0.0005);
  pauses.observe({ kind: 'major' }, 2);
  const shown = TEXT.render(await processFamilies(async () => registry)());
  assert.equal(shown.trim(), (await registry.metrics()).trim());
});

function withGauge(name: string): Registry {
  const registry = new Registry();
  registry.registerMetric(new Gauge({ name, help: 'Open.', registers: [] }));
  return registry;
}

/** Starts the metric with a mocked timer, and a clock that the test sets. */
function looked(t: { readonly mock: { readonly timers: typeof test.mock.timers } }) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let now = 0;
  const families = new Families('isthmus_');
  const end = eventLoopDelay(families, () => now);
  return {
    /** Runs the timer once, this many milliseconds late. */
    look(late: number) {
      now += 100 + late;
      t.mock.timers.tick(100);
    },
    async buckets(): Promise<Record<string, number>> {
      const { body } = await families.render();
      const lines = [
        ...body.toString().matchAll(/^isthmus_event_loop_delay_seconds_(?:bucket\{le="(.*)"\}|(count)) (\d+)$/gm),
      ];
      return Object.fromEntries(lines.map(([, le, count, value]) => [le ?? count ?? '', Number(value)]));
    },
    end() {
      end();
      t.mock.timers.reset();
    },
  };
}

test('each sample of the event loop observes its delay', async (t) => {
  const loop = looked(t);
  for (const late of [0, 0.5, 7, -3]) loop.look(late);
  const { '0.002': quick, '0.01': all, count } = await loop.buckets();
  assert.deepEqual([quick, all, count], [3, 4, 4]);
  loop.end();
});

test('a long delay also counts for the samples missed during it, each with a shorter delay', async (t) => {
  const loop = looked(t);
  loop.look(1000);
  const { '0.5': half, '1': whole, count } = await loop.buckets();
  // 1000, 900, ... 500, 400, ... 100 and 0 ms.
  assert.deepEqual([half, whole, count], [6, 11, 11]);
  loop.look(3_600_000);
  assert.equal((await loop.buckets()).count, 11 + 601);
  loop.end();
});

const DROPPED = 'isthmus_audit_dropped_total';

for (const role of ['gateway', 'hub'] as const) {
  test(`a ${role} counts lost audit records, starting at 0`, async () => {
    const { events, metrics } = server({ role });
    assert.deepEqual(await beginning(metrics, DROPPED), { '': 0 });
    events.emit('audit:dropped', 3);
    events.emit('audit:dropped', 500);
    assert.deepEqual(await beginning(metrics, DROPPED), { '': 503 });
  });
}

const EXPIRY = 'isthmus_certificate_expiry_timestamp_seconds';

test('the page has a line only for each certificate in use: its expiry in seconds since the epoch', async () => {
  const { events, metrics } = server();
  assert.deepEqual(await beginning(metrics, EXPIRY), {});
  events.emit('certificate', 'callers', 1_900_000_000_000);
  events.emit('certificate', 'admin', 1_800_000_000_000);
  events.emit('certificate', 'callers', 2_000_000_000_000);
  events.emit('certificate:failure', 'admin', 'tls.crt', new Error('there is no certificate (PEM) in tls.crt'));
  assert.deepEqual(await beginning(metrics, EXPIRY), { '{where="callers"}': 2e9, '{where="admin"}': 1.8e9 });
  const FAULTS = 'isthmus_certificate_faults';
  events.emit('certificate:failure', 'agents', 'tls.crt tls.key', new Error('a fault'));
  events.emit('certificate:failure', 'agents', 'tls.crt tls.key', new Error('another fault'));
  events.emit('certificate:failure', 'agents', 'ca.crt', new Error('a fault'));
  assert.deepEqual(await beginning(metrics, FAULTS), { '{where="admin"}': 1, '{where="agents"}': 2 });
  for (const files of ['tls.crt tls.key', 'ca.crt']) events.emit('certificate:failure', 'agents', files, undefined);
  assert.deepEqual(await beginning(metrics, FAULTS), { '{where="admin"}': 1, '{where="agents"}': 0 });
  const other = agent();
  other.events.emit('certificate', 'uplink', 1_900_000_000_000);
  assert.deepEqual(await beginning(other.metrics, EXPIRY), { '{where="uplink"}': 1.9e9 });
});

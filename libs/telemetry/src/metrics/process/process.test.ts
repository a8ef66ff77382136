import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gauge, Registry } from 'prom-client';
import { processFamilies } from './process.ts';

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

function withGauge(name: string): Registry {
  const registry = new Registry();
  registry.registerMetric(new Gauge({ name, help: 'Open.', registers: [] }));
  return registry;
}

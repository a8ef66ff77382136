import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Families } from './families.ts';
import { Count, Series } from './series.ts';

test('labels with the same values are one series, whatever their order and their type', () => {
  const series = new Series(['a', 'b'], () => new Count());
  series.of({ a: 'x', b: 1 }).inc();
  series.of({ b: '1', a: 'x' }).inc(2);
  series.of({ a: 'x","1', b: '' }).dec();
  assert.deepEqual(
    Array.from(series, ([labels, { value }]) => [labels, value]),
    [
      [{ a: 'x', b: 1 }, 3],
      [{ a: 'x","1', b: '' }, -1],
    ],
  );
});

test('a family without labels always has its line, one with labels has lines only for labels that were used', async () => {
  const families = new Families('x_');
  families.counter('alone_total', 'A.');
  families.gauges('labelled', 'B.', ['l']).of({ l: 'y' }).set(2.5);
  families.histograms('unused_seconds', 'C.', [1], ['l']);
  const { body } = await families.render();
  const lines = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  assert.deepEqual(lines, ['x_alone_total 0', 'x_labelled{l="y"} 2.5']);
});

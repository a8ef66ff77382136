import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aligned, derived, median, quantile, short } from './figures.ts';

test('a quantile is a value that was measured', () => {
  const values = Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual(
    [0, 0.5, 0.99, 1].map((q) => quantile(values, q)),
    [1, 51, 100, 100],
  );
  assert.equal(quantile([3, 1, 2], 0.5), 2);
  assert.equal(quantile([7], 0.99), 7);
  assert.equal(quantile([], 0.5), 0);
});

test('a median is the middle value, or the mean of the two middle ones, in whatever order they come', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(median([5]), 5);
  assert.equal(median([]), undefined);
});

test('figures are shown with three significant digits', () => {
  const shown = [0, 0.0123, 0.456, 1.234, 45.67, 456.7, 4567, 45_678, 456_789, -12.34].map(short);
  assert.deepEqual(shown, ['0.00', '0.012', '0.46', '1.23', '45.7', '457', '4567', '45.7k', '457k', '-12.3']);
});

test('a plane is the sum of its processes, without the load and the destination', () => {
  const figures = { server_cpu_s_per_gb: 2, agent_cpu_s_per_gb: 1.5, client_cpu_s_per_gb: 9, gb_per_s: 0.5 };
  const all = derived(figures, ['server', 'agent']);
  assert.equal(all.plane_cpu_s_per_gb, 3.5);
  assert.equal(all.gb_per_s, 0.5);
  assert.equal('plane_kb_per_tunnel' in all, false);
  assert.equal('plane_cpu_s_per_gb' in derived(figures, []), false);
});

test('what healthy traffic kept beside stalled tunnels is reported if there was some before', () => {
  const figures = { before_dials_per_s: 200, dials_per_s: 190, before_down_gb_per_s: 0, down_gb_per_s: 0.1 };
  const all = derived({ ...figures, before_ping_pings_per_s: 1000, ping_pings_per_s: 0 }, []);
  assert.equal(all.dials_kept, 0.95);
  assert.equal(all.ping_kept, 0);
  assert.equal('down_kept' in all, false);
});

test('rows become aligned text', () => {
  const rows = [
    ['a', 'long'],
    ['bcd', 'x|y'],
  ];
  assert.equal(aligned(rows), 'a    long\nbcd  x|y');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { draw } from './drawing.ts';

const drawing = {
  title: 'Time <per> "GB"',
  xLabel: 'downloads',
  yLabel: 'seconds',
  series: [
    { name: 'one & two', points: [[1, 2] as const, [16, 4] as const, [256, 3] as const] },
    { name: 'three', points: [[1, 1] as const] },
  ],
};

test('a drawing has a line for each series, with all points within the frame', () => {
  const svg = draw(drawing);
  assert.equal([...svg.matchAll(/<polyline /g)].length, 2);
  const points = [...svg.matchAll(/<circle cx="([\d.]+)" cy="([\d.]+)"/g)].map(([, x, y]) => [Number(x), Number(y)]);
  assert.deepEqual(points, [
    [64, 154],
    [342, 44],
    [620, 99],
    [64, 209],
  ]);
});

test('text in a drawing cannot break it', () => {
  const svg = draw(drawing);
  assert.ok(svg.includes('Time &lt;per> &quot;GB&quot;'));
  assert.ok(svg.includes('one &amp; two'));
  assert.equal([...svg.matchAll(/<text/g)].length, [...svg.matchAll(/<\/text>/g)].length);
});

test('a drawing is readable on a dark page, and has no background of its own', () => {
  const svg = draw(drawing);
  assert.match(svg, /@media \(prefers-color-scheme: dark\)/);
  assert.ok(!svg.includes('<rect'));
});

test('a single point can be drawn, and so can none', () => {
  const [, three] = drawing.series;
  assert.ok(!draw({ ...drawing, series: three ? [three] : [] }).includes('NaN'));
  assert.ok(!draw({ ...drawing, series: [] }).includes('NaN'));
});

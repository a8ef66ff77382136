import assert from 'node:assert/strict';
import test from 'node:test';
import { type Line, placeLabels } from './labels.ts';

/** Links of some members above to as many below, as the picture draws them. */
function links(members: number): Line[] {
  const at = (index: number) => ((index + 0.5) * 1000) / members;
  const each = Array.from({ length: members }, (_, index) => at(index));
  return each.flatMap((x1) => each.map((x2) => ({ x1, y1: 54, x2, y2: 170 })));
}

const SIZE = { width: 44, height: 16, gap: 4 };

/** How many lines run through labels, by many points of each line. */
function covered(lines: readonly Line[]): number {
  const labels = placeLabels(
    lines,
    lines.map(() => SIZE),
  );
  const inside = (px: number, py: number) => (label: { readonly x: number; readonly y: number }) =>
    Math.abs(px - label.x) * 2 < SIZE.width && Math.abs(py - label.y) * 2 < SIZE.height;
  const points = Array.from({ length: 501 }, (_, step) => step / 500);
  return lines.reduce(
    (sum, { x1, y1, x2, y2 }) =>
      sum +
      labels.filter((label) => points.some((at) => inside(x1 + (x2 - x1) * at, y1 + (y2 - y1) * at)(label))).length,
    0,
  );
}

test('labels stand beside the lines of up to three members a row, and those of six on few', () => {
  assert.deepEqual([1, 2, 3].map(links).map(covered), [0, 0, 0]);
  const six = links(6);
  assert.ok(covered(six) < six.length * 3, `${covered(six)} lines run through ${six.length} labels`);
});

test('no label stands on another one while there is room', () => {
  const labels = placeLabels(
    links(3),
    links(3).map(() => SIZE),
  );
  for (const [index, a] of labels.entries())
    for (const b of labels.slice(index + 1))
      assert.ok(Math.abs(a.x - b.x) >= SIZE.width || Math.abs(a.y - b.y) >= SIZE.height, JSON.stringify([a, b]));
});

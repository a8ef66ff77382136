import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Column, cut, fitted, widthOf, wrapped } from './fit.ts';
import { styleOf } from './style.ts';
import { table } from './table.ts';

const columns: readonly Column[] = [
  { name: 'agent', least: 6 },
  { name: 'zone', drop: 1 },
  { name: 'hubs', drop: 2 },
  { name: 'pid', wide: true },
];
const rows = [['a-long-name', 'west', 'hub-1', '77']];
const at = (width: number, wide = false) => {
  const { columns: shown, rows: cells } = fitted({ columns, rows }, { columns: width, wide });
  return [shown.map(({ name }) => name).join(), cells[0]?.join()];
};

describe('a table on a terminal', () => {
  it('cuts cells before it leaves out columns, the least important first', () => {
    assert.deepEqual(at(26), ['agent,zone,hubs', 'a-long-name,west,hub-1']);
    assert.deepEqual(at(24), ['agent,zone,hubs', 'a-long-n…,west,hub-1']);
    assert.deepEqual(at(20), ['agent,hubs', 'a-long-name,hub-1']);
    assert.deepEqual(at(10), ['agent', 'a-long-na…']);
    assert.deepEqual(at(1), ['agent', 'a-lon…'], 'what stays takes its room, however little there is');
  });

  it('has all columns with -o wide', () => {
    assert.deepEqual(at(10, true), ['agent,zone,hubs,pid', 'a-long-name,west,hub-1,77']);
  });

  it('cuts nothing for programs that read it, except what is always too long', () => {
    assert.deepEqual(at(Number.POSITIVE_INFINITY), ['agent,zone,hubs', 'a-long-name,west,hub-1']);
    const long = [{ name: 'reaches', most: 10 }];
    assert.equal(table(long, [['x'.repeat(50)]]), 'REACHES\nxxxxxxxxx…\n');
  });
});

describe('a text', () => {
  const { bad } = styleOf(true);

  it('is cut by what is seen, and keeps its colours', () => {
    assert.equal(widthOf(bad('lost')), 4);
    assert.deepEqual([cut(bad('lost'), 4), cut(bad('lost'), 3)], [bad('lost'), bad('lo…')]);
    assert.equal(cut(`${bad('ab')}cdef`, 4), `${bad('ab')}c…`);
    assert.equal(cut(`${bad('abcd')} and more`, 3), bad('ab…'));
  });

  it('is broken at spaces', () => {
    assert.deepEqual(wrapped('connect to the hub', 11, '  '), ['connect to', '  the hub']);
    assert.deepEqual(wrapped('', 10), ['']);
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countOf } from './instructions.ts';

test('the count is the first field of the line of its event', () => {
  assert.equal(countOf('# started on Mon\n\n1873465,,instructions:u,1203944,100.00,,\n'), 1_873_465);
});

test('there is no count where the kernel gives none', () => {
  assert.equal(countOf('<not supported>,,instructions:u,0,100.00,,\n'), undefined);
  assert.equal(countOf('<not counted>,,instructions:u,0,100.00,,\n'), undefined);
  assert.equal(countOf('perf: command not found\n'), undefined);
});

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import test from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { madeOnce } from './made-once.ts';
import { tempDir } from './places.ts';
import { scoped } from './scope.ts';

const DEADLINE_MS = 20_000;

test(
  'what several want at once is made once, also after the death of a maker, and again after a failure',
  scoped(async (scope) => {
    const path = `${await tempDir(scope)}/made`;
    const { pid } = spawnSync(process.execPath, ['--version']);
    writeFileSync(`${path}.pid`, `${pid}`);
    let times = 0;
    const failing = () => madeOnce(path, DEADLINE_MS, () => Promise.reject(new Error('no compiler')));
    await assert.rejects(failing, /no compiler/);
    const make = async () => {
      times++;
      await setTimeout(300);
      writeFileSync(path, 'it');
    };
    await Promise.all([1, 2, 3].map(() => madeOnce(path, DEADLINE_MS, make)));
    assert.deepEqual([times, existsSync(path), existsSync(`${path}.pid`)], [1, true, false]);
  }),
);

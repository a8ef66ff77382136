import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { madeOnce } from './made-once.ts';

test('a file is made, also behind a maker that was killed at any moment', async (context) => {
  const dir = await mkdtemp(join(tmpdir(), 'made-once-'));
  context.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'program');
  // Killed before it had written who it is, and after.
  for (const claim of ['', '999999999']) {
    await writeFile(`${path}.pid`, claim);
    let made = 0;
    const make = async () => {
      made++;
      await writeFile(path, 'made');
    };
    await Promise.all([madeOnce(path, 20_000, make), madeOnce(path, 20_000, make)]);
    // Two that find it out at once may both make it.
    assert.ok(made >= 1, `behind a claim of ${JSON.stringify(claim)}`);
    assert.deepEqual(await readdir(dir), ['program']);
    await rm(path);
  }
});

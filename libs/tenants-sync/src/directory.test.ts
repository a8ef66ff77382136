import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';
import { SYNC } from './defaults.ts';
import { Directory } from './directory.ts';

it('old folders go also while no tenant file can be written, which makes room on a full disk', () => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-directory-'));
  try {
    const directory = new Directory(dir);
    const folder = '.files/acme.old.0';
    directory.stage({ folder, files: new Map([['ca', 'x']]) });
    directory.commit('acme.prod', { text: 'tenant: prod\n', folder: '.files/acme.prod.0', files: new Map() });
    rmSync(join(dir, 'acme.prod.yaml'));
    // Nothing can be written there.
    mkdirSync(join(dir, '.half-acme.prod.yaml'));
    for (const now of [0, SYNC.oldFilesMs]) assert.throws(() => directory.mend(now), /EISDIR/);
    assert.ok(!existsSync(join(dir, folder)));
  } finally {
    rmSync(dir, { recursive: true });
  }
});

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { changesOf } from './changelog.mjs';
import { versionOf } from './version.mjs';
import { ROOT } from './workspace.mjs';

const TEXT =
  '# Changelog\n\n## 2.0.0 - unreleased\n\n- New.\n\n## 1.0.0 - 2026-01-31\n\n- First.\n\n- Second.\n\n## 0.9.0 - 2026-01-01\n';

test('a section ends where the next one begins, and has a date once it is released', () => {
  assert.deepEqual(changesOf('2.0.0', TEXT), { date: undefined, text: '- New.' });
  assert.deepEqual(changesOf('1.0.0', TEXT), { date: '2026-01-31', text: '- First.\n\n- Second.' });
});

test('a version without a section, or with an empty one, is refused with what to do', () => {
  assert.throws(() => changesOf('1.0', TEXT), /no section for 1\.0, .* begins with "## 1\.0 - unreleased"/);
  assert.throws(() => changesOf('0.9.0', TEXT), /nothing in its section for 0\.9\.0/);
});

test('CHANGELOG.md says what is in the version of package.json', () => {
  assert.ok(changesOf(versionOf(), readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')).text);
});

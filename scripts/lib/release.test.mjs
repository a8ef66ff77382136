import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { addressOf, changesOf, unlike } from './release.mjs';
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

test('an address is that of the web, without who cloned it', () => {
  const remotes = [
    'https://git.example.com/a/isthmus',
    'https://user:secret@git.example.com/a/isthmus.git',
    'ssh://git@git.example.com:2222/a/isthmus.git',
    'git@git.example.com:a/isthmus.git',
  ];
  for (const remote of remotes) assert.equal(addressOf(remote), 'git+https://git.example.com/a/isthmus.git', remote);
});

test('a directory is no address', () => {
  for (const remote of ['/srv/isthmus', '../isthmus', 'file:///srv/isthmus', ''])
    assert.equal(addressOf(remote), undefined, remote);
});

test('only the tagged commit without changes is a version', async () => {
  const root = mkdtempSync(join(tmpdir(), 'isthmus-repository-'));
  after(() => rmSync(root, { recursive: true, force: true }));
  assert.match((await unlike('1.0.0', root)).join(), /no git repository/);
  const who = ['-c', 'user.name=t', '-c', 'user.email=t@example.com', '-c', 'commit.gpgSign=false'];
  const git = (...args) => execFileSync('git', [...who, ...args], { cwd: root, stdio: 'pipe' });
  const commit = () => git('commit', '--allow-empty', '--message=x');
  git('init');
  commit();
  assert.deepEqual(await unlike('1.0.0', root), ['there is no tag v1.0.0: git tag --sign v1.0.0']);
  git('tag', 'v1.0.0');
  assert.deepEqual(await unlike('1.0.0', root), []);
  writeFileSync(join(root, 'new'), '');
  assert.match((await unlike('1.0.0', root)).join(), /^the work tree has changes: commit them\n\?\? new$/);
  rmSync(join(root, 'new'));
  commit();
  assert.deepEqual(await unlike('1.0.0', root), ['v1.0.0 is another commit: git checkout v1.0.0']);
});

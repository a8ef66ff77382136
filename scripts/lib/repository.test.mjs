import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { addressOf, unlike } from './repository.mjs';

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

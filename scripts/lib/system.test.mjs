import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, test } from 'node:test';
import { librariesIn } from './system.mjs';

const LINUX = process.platform === 'linux';

test('this Node has loaded the libraries that ldd finds', { skip: !LINUX && 'no Linux' }, () => {
  const { stdout } = spawnSync('ldd', [process.execPath], { encoding: 'utf8' });
  const libraries = librariesIn('/');
  const wanted = [...stdout.matchAll(/(\S+) \(0x/g)].map(([, path]) => basename(path));
  assert.deepEqual(
    libraries.map(({ path }) => basename(path)).sort(),
    wanted.filter((name) => !name.startsWith('linux-vdso')).sort(),
  );
  for (const { file } of libraries) assert.ok(existsSync(file), file);
});

test('those of another processor have its paths', { skip: !LINUX && 'no Linux' }, () => {
  const root = mkdtempSync(join(tmpdir(), 'isthmus-system-'));
  after(() => rmSync(root, { recursive: true, force: true }));
  const place = join(root, 'usr/lib/riscv64-linux-gnu');
  mkdirSync(place, { recursive: true });
  for (const name of ['libc.so.6', 'ld-linux-riscv64-lp64d.so.1']) writeFileSync(join(place, name), '');
  const libraries = librariesIn(root);
  const [loader, libc] = ['ld-linux', 'libc.'].map((start) =>
    libraries.find(({ path }) => basename(path).startsWith(start)),
  );
  assert.equal(libc.path, '/usr/lib/riscv64-linux-gnu/libc.so.6');
  assert.deepEqual(loader, {
    path: '/lib/ld-linux-riscv64-lp64d.so.1',
    file: join(place, 'ld-linux-riscv64-lp64d.so.1'),
  });
});

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, test } from 'node:test';
import { stamped, versionOf } from './version.mjs';
import { filesBelow, ROOT, readJson } from './workspace.mjs';

const BEFORE = versionOf();
const NEXT = '98.76.54-rc.1';

/** Returns all files that name the version, after the number in the root's package.json has changed. */
function nextVersion() {
  const root = mkdtempSync(join(tmpdir(), 'isthmus-version-'));
  after(() => rmSync(root, { recursive: true, force: true }));
  const wanted = /(package(-lock)?\.json|service\/src\/program\.ts|\.ya?ml|\.md|Containerfile)$/;
  for (const directory of ['apps', 'libs', 'test', 'tools', 'k8s', 'docs'])
    for (const path of filesBelow(join(ROOT, directory), (file) => wanted.test(file)))
      cpSync(path, join(root, relative(ROOT, path)));
  cpSync(join(ROOT, 'package-lock.json'), join(root, 'package-lock.json'));
  writeFileSync(join(root, 'package.json'), JSON.stringify({ ...readJson(join(ROOT, 'package.json')), version: NEXT }));
  return stamped(root);
}

test('one number changes all packages, the programs, the chart and the images of manifests and pages', () => {
  const next = nextVersion();
  const parsed = (path) => JSON.parse(next.get(path));
  assert.equal(parsed('apps/agent/package.json').version, NEXT);
  assert.equal(parsed('apps/agent/package.json').dependencies['@isthmus/tunnel'], NEXT);
  assert.equal(parsed('package-lock.json').version, NEXT);
  assert.equal(parsed('package-lock.json').packages['libs/admin'].dependencies['@isthmus/flags'], NEXT);
  assert.match(next.get('libs/service/src/program.ts'), /VERSION = '98\.76\.54-rc\.1'/);
  assert.match(next.get('k8s/chart/Chart.yaml'), /^version: 98\.76\.54-rc\.1\nappVersion: 98\.76\.54-rc\.1$/m);
  assert.match(next.get('k8s/base/plane/hub.yaml'), /image: isthmus:98\.76\.54-rc\.1/);
  assert.match(
    next.get('k8s/recipes/kamaji/sidecar.yaml'),
    /version: 98\.76\.54-rc\.1[\s\S]*version: 98\.76\.54-rc\.1/,
  );
});

test('nothing that names an image keeps the number before', () => {
  for (const [path, text] of nextVersion()) {
    const image = text.split('\n').filter((line) => /isthmus|proxy-|gw|hub/.test(line) && line.includes(`:${BEFORE}`));
    assert.deepEqual(image, [], path);
  }
});

test('versions of others stay', () => {
  const lock = JSON.parse(nextVersion().get('package-lock.json'));
  const before = readJson(join(ROOT, 'package-lock.json'));
  for (const [path, { version }] of Object.entries(before.packages)) {
    if (path.includes('node_modules/')) assert.equal(lock.packages[path].version, version, path);
  }
});

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { root } from './k8s/manifests.ts';

const documents = ['.', 'docs', 'docs/adr', 'k8s', 'k8s/monitoring'].flatMap((directory) =>
  readdirSync(join(root, directory))
    .filter((name) => name.endsWith('.md'))
    .map((name) => join(directory, name)),
);

test('every link inside the repository leads to a file', () => {
  for (const path of documents) {
    for (const [, target = ''] of readFileSync(join(root, path), 'utf8').matchAll(/\]\(([^)#\s]+)[^)]*\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      assert.ok(existsSync(join(root, dirname(path), target)), `${path} links to ${target}`);
    }
  }
});

test('docs/adr/README.md has one line for each decision', () => {
  const index = readFileSync(join(root, 'docs/adr/README.md'), 'utf8');
  const decisions = readdirSync(join(root, 'docs/adr')).filter((name) => /^\d{4}-.*\.md$/.test(name));
  for (const name of decisions) {
    const lines = index.split('\n').filter((line) => line.includes(`](${name})`));
    assert.equal(lines.length, 1, name);
  }
});

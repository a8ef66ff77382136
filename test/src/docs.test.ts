import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { root } from './k8s/manifests.ts';

const recipes = readdirSync(join(root, 'k8s/recipes')).map((recipe) => `k8s/recipes/${recipe}`);

const documents = ['.', 'docs', 'docs/adr', 'k8s', 'k8s/monitoring', ...recipes].flatMap((directory) =>
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

const HANDBOOKS = [
  'README.md',
  'ARCHITECTURE.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'docs/KUBERNETES.md',
  'docs/MIGRATE.md',
];

/** Returns the repository's files that a text names between backticks, and its folders, which end in a slash or have no extension. */
function pathsIn(text: string): string[] {
  return [...text.matchAll(/`((?:apps|docs|k8s|libs|scripts|test)\/[\w./-]+)`/g)].map(([, path = '']) => path);
}

for (const document of HANDBOOKS) {
  test(`every file that ${document} names exists`, () => {
    const missing = pathsIn(readFileSync(join(root, document), 'utf8')).filter((path) => !existsSync(join(root, path)));
    assert.deepEqual(missing, [], `${document} names files that are not there: move the names with the files`);
  });
}

test('ARCHITECTURE.md says where to change twelve things, each with its files', () => {
  const [, section = ''] = readFileSync(join(root, 'ARCHITECTURE.md'), 'utf8').split('\n## Where would I change ...\n');
  const answers = section.split('\n').filter((line) => /^\| .*\? \| /.test(line));
  assert.equal(answers.length, 12);
  for (const answer of answers) assert.ok(pathsIn(answer).length > 0, answer);
});

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { root } from './k8s/manifests.ts';

const recipes = readdirSync(join(root, 'k8s/recipes')).map((recipe) => `k8s/recipes/${recipe}`);

const packages = readdirSync(join(root, 'libs')).map((name) => `libs/${name}`);

const documents = ['.', 'docs', 'docs/adr', 'k8s', 'k8s/monitoring', ...recipes, ...packages].flatMap((directory) =>
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

test('every link to a part of a page of ours leads to a heading', () => {
  let found = 0;
  for (const path of documents) {
    for (const [, target = '', anchor = ''] of read(path).matchAll(/\]\(([^)#\s]*)#([^)\s]+)[^)]*\)/g)) {
      const page = target === '' ? path : join(dirname(path), target);
      if (/^[a-z]+:/.test(target) || !page.endsWith('.md')) continue;
      assert.ok(anchorsOf(read(page)).has(anchor), `${path} links to ${page}#${anchor}: no heading has this anchor`);
      found++;
    }
  }
  assert.ok(found > 0);
});

test('no two paragraphs run together, as where lines were joined without the empty one between them', () => {
  for (const path of documents) {
    const prose = read(path)
      .replaceAll(/^ *```[\s\S]*?^ *```$/gm, '')
      .replaceAll(/^\|.*$/gm, '');
    const [joined] = /^.*\S {2,}\S.*$/m.exec(prose) ?? [];
    assert.equal(joined, undefined, path);
  }
});

test("a heading's anchor is GitHub's", () => {
  const page = '# A `b-c` & *d*, [e](f.md)!\n## Über x_y\n```sh\n# no heading\n```\n### Twice\n## Twice ##\n';
  assert.deepEqual([...anchorsOf(page)], ['a-b-c--d-e', 'über-x_y', 'twice', 'twice-1']);
});

/** Returns the anchors that GitHub gives to the headings of a page. */
function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  const prose = markdown.replaceAll(/^ *(```|~~~).*\n[\s\S]*?^ *\1.*$/gm, '');
  for (const [, heading = ''] of prose.matchAll(/^#{1,6} +(.*?) *#*$/gm)) {
    const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const slug = text.replaceAll(/[^\p{L}\p{M}\p{N}_\- ]/gu, '').replaceAll(' ', '-');
    let anchor = slug;
    for (let again = 1; anchors.has(anchor); again++) anchor = `${slug}-${again}`;
    anchors.add(anchor);
  }
  return anchors;
}

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

test('each constant of behaviour has its sentence in the defaults.ts of its package', async () => {
  const files = ['libs', 'apps'].flatMap((group) =>
    readdirSync(join(root, group)).map((name) => join(root, group, name, 'src/defaults.ts')),
  );
  for (const file of files.filter((path) => existsSync(path))) {
    const [, name = '', entries = ''] = /\*\/\s*export const (\w+)([\s\S]*)/.exec(readFileSync(file, 'utf8')) ?? [];
    const told = new Set([...entries.matchAll(/\/\*\*(?:(?!\*\/).)*\*\/\s*(\w+):/gs)].map(([, key]) => key));
    const values = (await import(pathToFileURL(file).href))[name] as Record<string, unknown> | undefined;
    assert.ok(values, `${file} exports a documented object`);
    assert.deepEqual(
      Object.keys(values).filter((key) => !told.has(key)),
      [],
      `${file} does not say what these are`,
    );
  }
});

const HANDBOOKS = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md', 'docs/KUBERNETES.md'];

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

test('each answer of ARCHITECTURE.md and each recipe of CONTRIBUTING.md about a change names its files', () => {
  const [, section = ''] = read('ARCHITECTURE.md').split('\n## Where would I change ...\n');
  const answers = section.split('\n').filter((line) => /^\| .*\? \| /.test(line));
  assert.ok(answers.length > 0);
  const [, changes = ''] = read('CONTRIBUTING.md').split('\n## Common changes\n');
  const recipes = (changes.split('\n## ')[0] ?? '').split('\n### ').slice(1);
  assert.ok(recipes.length > 0);
  for (const answer of [...answers, ...recipes]) assert.ok(pathsIn(answer).length > 0, answer);
});

test('each class and constant that ARCHITECTURE.md names stands in a file that it names', () => {
  const text = readFileSync(join(root, 'ARCHITECTURE.md'), 'utf8');
  const sources = pathsIn(text)
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join(root, path), 'utf8'));
  const names = [...text.matchAll(/`([A-Z]\w+)`/g)].map(([, name = '']) => name);
  assert.ok(names.length > 30);
  assert.deepEqual(
    names.filter((name) => !sources.some((source) => source.includes(name))),
    [],
  );
});

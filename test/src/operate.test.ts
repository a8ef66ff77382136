import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { isthmusTenantsSync, parseFlags } from '@isthmus/flags';
import { interpret, type Terminal } from '@isthmus/isthmus';
import { root } from './k8s/manifests.ts';

const RECIPES = readdirSync(join(root, 'k8s/recipes')).map((recipe) => `k8s/recipes/${recipe}/README.md`);
const PAGES = ['KUBERNETES', 'OPERATE', 'TENANTS'].map((page) => `docs/${page}.md`);

/** Returns every command line of a document: in blocks of shell, and between backticks. */
function commandLines(path: string): string[] {
  const text = readFileSync(join(root, path), 'utf8');
  const blocks = [...text.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block = '']) => block.split('\n'));
  const inline = [...text.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
  const lines = [...blocks, ...inline].map((line) => line.replace(/^npx |^kubectl .* -- /, ''));
  return lines.filter((line) => /^isthmus [a-z]/.test(line)).map((line) => line.replace(/ \|\|? .*/, ''));
}

/** Splits a line into words as a shell would, with quotes. Replaces the capitals that readers fill in. */
function wordsOf(line: string): string[] {
  const bare = line
    .replace(/\s+#.*$/, '')
    .replaceAll('HOST:PORT', '10.0.0.1:80')
    .replaceAll('AGENT:8094', '10.0.0.1:8094');
  return [...bare.matchAll(/"([^"]*)"|(\S+)/g)].slice(1).map(([, quoted, word]) => quoted ?? word ?? '');
}

function terminalFor(args: string[], err: string[]): Terminal {
  return {
    args,
    env: {},
    interactive: false,
    colours: false,
    interrupted: new AbortController().signal,
    out: () => {},
    err: (text) => err.push(text),
    columns: () => 120,
  };
}

for (const document of [
  'README.md',
  'k8s/README.md',
  ...PAGES,
  ...RECIPES.filter((page) => commandLines(page).length > 0),
]) {
  test(`isthmus accepts every command line in ${document}`, () => {
    const lines = commandLines(document);
    assert.ok(lines.length > 0);
    for (const line of lines) {
      const err: string[] = [];
      const words = wordsOf(line);
      if (words[0] === 'tenants' && words[1] === 'sync') {
        parseFlags(isthmusTenantsSync.flags, words.slice(2), {});
        continue;
      }
      // One word only names a command, without its arguments.
      const named = words.length === 1;
      const result = interpret(terminalFor(named ? [...words, '--help'] : words, err));
      assert.ok(named ? result === 0 : typeof result === 'object', `${line}: ${err.join('')}`);
    }
  });
}

test('docs/OPERATE.md has a section for each kind of check, in their order, and help names them all', () => {
  const sections = [...readFileSync(join(root, 'docs/OPERATE.md'), 'utf8').matchAll(/^### (.+)$/gm)].map(
    ([, name]) => name,
  );
  const help: string[] = [];
  interpret({ ...terminalFor(['check', '--help'], []), out: (part) => help.push(part) });
  const named = [...help.join('').matchAll(/^ {2}([a-z]+) {2,}[^<\n]+$/gm)].map(([, name]) => name);
  assert.ok(sections.length > 10);
  assert.deepEqual(named.slice(0, sections.length), sections);
});

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { isthmusHold, isthmusTenantsSync, PROGRAMS } from '@isthmus/flags';
import { root } from './k8s/manifests.ts';

/** The pages that an operator follows from the first line to the last. */
const PAGES = [
  ...['docs/KUBERNETES.md', 'docs/EDGE.md', 'docs/RELEASE.md', 'k8s/README.md', 'k8s/monitoring/README.md'],
  ...readdirSync(join(root, 'k8s/recipes')).map((name) => `k8s/recipes/${name}/README.md`),
];

/** Flags of others that the pages name, by whose they are. */
const OTHERS = new Map([
  ['egress-selector-config-file', 'kube-apiserver'],
  ['service-account-key-file', 'kube-apiserver'],
  ['disable-components', 'k0s'],
  ['max-semi-space-size', 'Node'],
  ['v8-pool-size', 'Node'],
  ['way', 'npm run cluster'],
  ['apiserver-cert-extra-sans', 'kubeadm'],
  ['dry-run', 'npm run release'],
  ['repository', 'npm run release'],
  ['row', 'npm run chaos'],
  ...['planebench', 'anp-server', 'anp-agent'].map((option) => [option, 'npm run bench'] as const),
  ...['resolve', 'proxytunnel', 'proxy-header', 'proxy-http2'].map((option) => [option, 'curl'] as const),
  ['proxy-server', 'Chromium'],
]);

const ours = new Set([...PROGRAMS, isthmusHold, isthmusTenantsSync].flatMap(({ flags }) => Object.keys(flags)));
const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

function shellBlocks(page: string): string[] {
  return [...read(page).matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = '']) => block);
}

/** Returns the pieces of code in lines. */
function inline(page: string): string[] {
  const prose = read(page).replaceAll(/```[\s\S]*?```/g, '');
  return [...prose.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
}

/** Returns the arguments of `kubectl apply -k` and its like that are paths of this repository. */
function directories(page: string): string[] {
  const all = [...shellBlocks(page), ...inline(page)].join('\n');
  return [...all.matchAll(/\bkubectl (?:apply -k|kustomize) (?:~\/isthmus\/)?(k8s\/[\w./-]+|\.)(?=\s|$)/g)].map(
    ([, path = '']) => (path === '.' ? dirname(page) : path),
  );
}

for (const page of PAGES) {
  test(`${page}: a shell reads every block of commands`, () => {
    for (const block of shellBlocks(page)) {
      const { status, stderr } = spawnSync('bash', ['-n'], { input: block, encoding: 'utf8' });
      assert.equal(status, 0, `${stderr}\n${block}`);
    }
  });

  test(`${page}: every script of npm exists, and has the options that the page gives it`, () => {
    for (const code of [...shellBlocks(page).flatMap((block) => block.split('\n')), ...inline(page)]) {
      const [, name, rest = ''] = /\bnpm run ([\w:-]+)(?: -- ([^#]*))?/.exec(code) ?? [];
      if (!name) continue;
      assert.ok(scripts[name], `npm run ${name}`);
      if (rest === '') continue;
      const help = spawnSync('npm', ['run', '--silent', name, '--', '--help'], { cwd: root, encoding: 'utf8' }).stdout;
      for (const [option] of rest.matchAll(/--[a-z][\w-]*/g))
        assert.ok(help.includes(option), `npm run ${name} -- ${option}`);
    }
  });

  test(`${page}: every directory to apply has a kustomization`, () => {
    for (const path of directories(page)) assert.ok(existsSync(join(root, path, 'kustomization.yaml')), path);
  });
}

/** Pages of other tables, whose flags stand in sentences. */
const OF_FLAGS = ['docs/COMMANDS.md', 'docs/FLAGS.md'];
const pagesWithFlags = [...PAGES, ...['.', 'docs'].flatMap(pagesIn).filter((page) => !OF_FLAGS.includes(page))];

function pagesIn(directory: string): string[] {
  const pages = readdirSync(join(root, directory)).filter((name) => name.endsWith('.md') && name !== 'CHANGELOG.md');
  return pages.map((name) => join(directory, name));
}

for (const page of new Set(pagesWithFlags)) {
  test(`${page}: every flag exists`, () => {
    const commands = new Set(read('docs/COMMANDS.md').match(/(?<=--)[a-z][\w-]*/g));
    const unknown = inline(page)
      .flatMap(flagsIn)
      .filter((flag) => !ours.has(flag) && !OTHERS.has(flag) && !commands.has(flag));
    assert.deepEqual(unknown, [], 'no flag of a program, and no option of a command');
  });
}

/** The flag that a piece of code begins with. `--admin-*` is several. */
function flagsIn(code: string): string[] {
  return /^--([a-z][\w-]*)(?<!-)(?![\w-])/.exec(code)?.slice(1) ?? [];
}

test('the pages name flags, scripts and directories', () => {
  assert.ok(PAGES.flatMap(directories).length >= 3);
  const flags = PAGES.flatMap(inline).filter((code) => code.startsWith('--'));
  assert.ok(flags.length > 50, `${flags.length} flags`);
});

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { tempDir } from './harness/places.ts';
import { Scope } from './harness/scope.ts';
import { root } from './k8s/manifests.ts';

interface Package {
  readonly workspaces?: string[];
  readonly dependencies?: Record<string, string>;
  readonly devDependencies?: Record<string, string>;
  readonly optionalDependencies?: Record<string, string>;
}

const top = readPackage('.');

function readPackage(directory: string): Package {
  return JSON.parse(readFileSync(join(root, directory, 'package.json'), 'utf8')) as Package;
}

/** Directories with a package.json of their own, the workspace's first. */
function packageDirectories(): string[] {
  const members = (top.workspaces ?? []).flatMap((pattern) => {
    if (!pattern.endsWith('/*')) return [pattern];
    const parent = pattern.slice(0, -2);
    return readdirSync(join(root, parent)).map((name) => `${parent}/${name}`);
  });
  return ['.', ...members.filter((directory) => existsSync(join(root, directory, 'package.json')))];
}

/** Every direct dependency that is not ours, with its versions by directory. */
function directDependencies(): Map<string, Map<string, string>> {
  const found = new Map<string, Map<string, string>>();
  for (const directory of packageDirectories()) {
    const { dependencies, devDependencies, optionalDependencies } = readPackage(directory);
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      if (name.startsWith('@isthmus/')) continue;
      const places = found.get(name) ?? new Map<string, string>();
      found.set(name, places.set(directory === '.' ? 'root' : directory, version));
    }
  }
  return found;
}

interface Line {
  readonly name: string;
  readonly places: string[];
  readonly reason: string;
}

function lines(): Line[] {
  const table = readFileSync(join(root, 'docs/dependencies.md'), 'utf8').split('\n');
  return table
    .filter((line) => line.startsWith('| ') && !line.startsWith('| dependency |') && !line.startsWith('| ---'))
    .map((line) => {
      const [name = '', where = '', reason = ''] = line.slice(2).split(' | ');
      return { name: name.replaceAll('`', ''), places: where.replaceAll('`', '').split(', '), reason };
    });
}

const dependencies = directDependencies();
const documented = lines();

test('every direct dependency has its line in docs/dependencies.md, and every line its dependency', () => {
  const names = documented.map(({ name }) => name);
  assert.deepEqual(names, [...dependencies.keys()].sort());
});

test('each line says where the dependency is used and why', () => {
  for (const { name, places, reason } of documented) {
    assert.deepEqual([...places].sort(), [...(dependencies.get(name)?.keys() ?? [])].sort(), `where ${name} is used`);
    assert.ok(reason.length > 20, `${name}: what it does for us, and why not the alternative`);
  }
});

test('every direct dependency is pinned to one exact version', () => {
  for (const [name, places] of dependencies) {
    const versions = new Set(places.values());
    assert.equal(versions.size, 1, `${name} is ${[...versions].join(' and ')}`);
    for (const [place, version] of places) {
      assert.match(version, /^\d+\.\d+\.\d+(-[\w.]+)?$/, `${name} of ${place} is ${version}`);
    }
  }
});

/** Returns where biome refuses an import in files that a copy of its rules is about, each with their line. */
async function refusedImports(files: Record<string, string>): Promise<string[]> {
  await using scope = new Scope();
  const directory = await tempDir(scope);
  cpSync(join(root, 'biome.json'), join(directory, 'biome.json'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, path)), { recursive: true });
    writeFileSync(join(directory, path), text);
  }
  const biome = join(root, 'node_modules/.bin/biome');
  const args = [
    'lint',
    '--vcs-enabled=false',
    '--only=style/noRestrictedImports',
    '--reporter=github',
    '--max-diagnostics=none',
  ];
  const { stdout } = spawnSync(biome, args, { cwd: directory, encoding: 'utf8', timeout: 60_000 });
  return [...stdout.matchAll(/noRestrictedImports,file=(.*?),line=(\d+)/g)].map(
    ([, file = '', line]) => `${relative(directory, file)}:${line}`,
  );
}

test('biome refuses every library and program an import of a program', async () => {
  const members = packageDirectories().filter((path) => /^(libs|apps)\//.test(path));
  const files = members.filter((path) => !/^apps\/(demo|server)$/.test(path)).map((path) => `${path}/src/x.ts`);
  const text = "import type { A } from '@isthmus/server';\nexport type B = A;\n";
  const refused = await refusedImports(Object.fromEntries(files.map((file) => [file, text])));
  assert.deepEqual(refused.sort(), files.map((file) => `${file}:1`).sort());
});

test('biome refuses the core what is above it, sockets, and files of other packages', async () => {
  const text = [
    "import type { A } from '@isthmus/transport';",
    "import type { B } from 'node:net';",
    "import type { C } from 'node:fs/promises';",
    "import type { D } from '../../runtime/src/index.ts';",
    "import type { E } from 'node:stream';",
    "import type { F } from '@isthmus/proto';",
    'export type All = A | B | C | D | E | F;',
  ].join('\n');
  const refused = await refusedImports({ 'libs/tunnel/src/x.ts': text, 'libs/tunnel/src/x.test.ts': text });
  assert.deepEqual(
    refused.sort(),
    [1, 2, 3, 4].map((line) => `libs/tunnel/src/x.ts:${line}`),
  );
});

test('the actions of workflows are pinned by commit, each with its version beside it', () => {
  const directory = join(root, '.github/workflows');
  const used = readdirSync(directory).flatMap((name) => {
    const text = readFileSync(join(directory, name), 'utf8');
    return [...text.matchAll(/uses: (.*)$/gm)].map(([, action = '']) => action);
  });
  assert.ok(used.length > 8);
  for (const action of used) assert.match(action, /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  // One version of an action everywhere.
  const names = new Set(used.map((action) => action.split('@')[0]));
  assert.equal(new Set(used).size, names.size, `${[...new Set(used)]}`);
});

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
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

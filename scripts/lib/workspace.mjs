import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** The file that npm writes last, after everything else is in place; relative to the root. */
export const INSTALLED = join('node_modules', '.package-lock.json');

const NOT_OURS = new Set(['node_modules', 'dist']);

export function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

/** Returns every file below a directory, as absolute paths in a fixed order, without what npm and tsc put there. */
export function filesBelow(dir, accept = () => true) {
  if (!existsSync(dir)) return [];
  const entries = readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
  return entries.flatMap((entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return NOT_OURS.has(entry.name) ? [] : filesBelow(path, accept);
    return entry.isFile() && accept(path) ? [path] : [];
  });
}

/** Returns the packages of ours that the root's `workspaces` names (`libs/*` or a plain directory). `tools` has only dependencies. */
export function workspacePackages(root = ROOT) {
  const dirs = readJson(join(root, 'package.json')).workspaces.flatMap((pattern) => {
    if (!pattern.endsWith('/*')) return [join(root, pattern)];
    const parent = join(root, pattern.slice(0, -2));
    const children = readdirSync(parent, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return children.map((entry) => join(parent, entry.name)).sort();
  });
  return dirs
    .filter((dir) => existsSync(join(dir, 'package.json')) && existsSync(join(dir, 'tsconfig.json')))
    .map((dir) => ({ dir, path: relative(root, dir), manifest: readJson(join(dir, 'package.json')) }));
}

/** Returns the packages that are programs, which have a command: of these projects and everything they refer to, or all. */
export function programs(projects = [], root = ROOT) {
  const all = workspacePackages(root).filter(({ manifest }) => manifest.bin);
  if (projects.length === 0) return all;
  const built = withReferences(projects.map((path) => join(root, path)));
  return all.filter(({ dir }) => built.has(dir));
}

/** Returns the directories of all packages that tsc builds for these projects, or all. */
export function projectsBelow(projects = [], root = ROOT) {
  const dirs =
    projects.length > 0 ? projects.map((path) => join(root, path)) : workspacePackages(root).map(({ dir }) => dir);
  return [...withReferences(dirs)];
}

/** Returns the directories that tsc builds if given these. */
function withReferences(dirs, found = new Set()) {
  for (const dir of dirs.filter((each) => !found.has(each))) {
    found.add(dir);
    const { references = [] } = readJson(join(dir, 'tsconfig.json'));
    withReferences(
      references.map(({ path }) => join(dir, path)),
      found,
    );
  }
  return found;
}

const isTest = (path) => path.endsWith('.test.ts');

/** Returns the sources of a package's tests. */
export function testSources(dir) {
  return filesBelow(join(dir, 'src'), isTest);
}

/** Returns the compiled tests. It derives them from the sources, so that the output of a deleted test does not run. */
export function compiledTests(dir) {
  const src = join(dir, 'src');
  return testSources(dir).map((path) => join(dir, 'dist', relative(src, path).replace(/\.ts$/, '.js')));
}

/** Returns the directories of the unit tests and those of the integration tests. */
export function suites(root = ROOT) {
  const dirs = workspacePackages(root).map(({ dir }) => dir);
  const integration = join(root, 'test');
  return { unit: dirs.filter((dir) => dir !== integration), integration: [integration] };
}

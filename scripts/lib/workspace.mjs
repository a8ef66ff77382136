import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const NOT_OURS = new Set(['node_modules', 'dist']);

export function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

/** Does something with an empty directory, which is removed afterwards. */
export async function inScratch(work) {
  const scratch = mkdtempSync(join(tmpdir(), 'isthmus-scratch-'));
  try {
    return await work(scratch);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
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
    .filter((dir) => existsSync(join(dir, 'package.json')) && existsSync(join(dir, 'src')))
    .map((dir) => ({ dir, path: relative(root, dir), manifest: readJson(join(dir, 'package.json')) }));
}

/** Returns the packages that are programs: they have a command. */
export function programs(root = ROOT) {
  return workspacePackages(root).filter(({ manifest }) => manifest.bin);
}

/** Returns the names of a program's commands, without those that are a second name of one: kubectl finds `isthmus` by another. */
export function commandsOf({ manifest }) {
  const files = Object.values(manifest.bin);
  return Object.keys(manifest.bin).filter((_, index) => files.indexOf(files[index]) === index);
}

/**
 * Copies the bundles of programs, without their source maps, below `programs`, and writes what starts each below `bin`.
 * @param bundles what `bundlePrograms` has made
 * @param node what the first line of a command names
 * @returns the programs' names
 */
export function copyPrograms(bundles, directory, node) {
  const names = readdirSync(bundles);
  cpSync(bundles, join(directory, 'programs'), { recursive: true, filter: (path) => !path.endsWith('.map') });
  mkdirSync(join(directory, 'bin'), { recursive: true });
  for (const name of names)
    writeFileSync(join(directory, 'bin', `${name}.js`), `#!${node}\nimport '../programs/${name}/main.js';\n`);
  return names;
}

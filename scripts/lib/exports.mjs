import { readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { readModule } from './modules.mjs';
import { filesBelow, workspacePackages } from './workspace.mjs';

/**
 * Returns every name that a package exports and no other package imports, one line each: entry points hold what others use. Imports in
 * tests of other packages count. Entry points for tests (`./testing`) are not checked. An export that cannot be checked also gives a line.
 */
export function unusedExports(root) {
  const packages = workspacePackages(root);
  const imported = namesByEntry(packages);
  return packages.flatMap(entriesOf).flatMap(({ specifier, manifestFile, path, source }) => {
    if (!source?.startsWith?.('./src/')) return [`${relative(root, manifestFile)} exports ${path}, which is no source`];
    const file = resolve(dirname(manifestFile), source);
    const names = exportsOf(file);
    const others = foreignStars(file).map(
      (from) => `${relative(root, file)} exports all of ${from}: others import that from ${from} itself`,
    );
    const used = imported.get(specifier) ?? new Set();
    const unused = used.has('*') ? [] : [...names].filter((name) => !used.has(name)).sort();
    return [
      ...others,
      ...unused.map((name) => `${relative(root, file)} exports ${name}, which no other package imports`),
    ];
  });
}

/** Returns the entry points of a package: the name by which others import each, and its source. */
function entriesOf({ dir, manifest }) {
  return Object.entries(manifest.exports ?? {})
    .filter(([path]) => !path.startsWith('./testing'))
    .map(([path, entry]) => ({
      ...{ specifier: join(manifest.name, path), path },
      ...{ manifestFile: join(dir, 'package.json'), source: entry },
    }));
}

/** Returns the names that other packages import from each entry point; `*` if one of them imports all. */
function namesByEntry(packages) {
  const found = new Map();
  const names = packages.map(({ manifest }) => manifest.name);
  for (const { dir, manifest } of packages) {
    for (const file of filesBelow(dir, (path) => /\.(tsx?|m?js)$/.test(path))) {
      const text = readFileSync(file, 'utf8');
      if (!names.some((name) => text.includes(name))) continue;
      for (const { from, name } of readModule(file).imports) {
        if (from === manifest.name || from.startsWith(`${manifest.name}/`)) continue;
        found.set(from, (found.get(from) ?? new Set()).add(name));
      }
    }
  }
  return found;
}

/** Returns every name that a module exports, including those of modules that it exports as a whole. */
function exportsOf(file) {
  const { exports, stars } = readModule(file);
  return new Set([...exports, ...stars.filter(isRelative).flatMap((from) => [...exportsOf(beside(file, from))])]);
}

/** Returns the packages that a module, or a module that it exports as a whole, exports as a whole. */
function foreignStars(file) {
  return readModule(file).stars.flatMap((from) => (isRelative(from) ? foreignStars(beside(file, from)) : [from]));
}

function isRelative(specifier) {
  return specifier.startsWith('.');
}

function beside(file, specifier) {
  return resolve(dirname(file), specifier);
}

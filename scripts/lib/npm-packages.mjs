import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { command, npm } from './command.mjs';
import { bill, licences } from './image-bill.mjs';
import { programs, ROOT, readJson, workspacePackages } from './workspace.mjs';

const PACK_MS = 5 * 60_000;
/** What is there for tests, in a package's `dist` and among its entry points. */
const FOR_TESTS = /\.test\.|(^|\/)testing([./]|$)/;
/** What the workspace needs of a package and nobody else: sources for Deno, maps of sources, state of tsc, bundles. */
const OF_WORKSPACE = /\.map$|\.tsbuildinfo$|(^|\/)bundle(\/|$)/;

/**
 * Packs for npm: every package of the workspace that others can import, and one package with all programs. In the workspace, packages are
 * private, so that nobody publishes them from there by mistake; what is packed has a manifest of its own.
 * @param to the directory for the tarballs
 * @param scratch an empty directory
 * @param repository the address of the repository, which npm compares with where a package was built; undefined if there is none
 * @returns the tarballs' paths, the programs' first
 */
export async function packAll({ to, scratch, repository, root = ROOT }) {
  const common = (path) => ({
    ...fieldsOf(readJson(join(root, 'package.json'))),
    ...(repository && { repository: { type: 'git', url: repository, ...(path && { directory: path }) } }),
  });
  const libraries = workspacePackages(root).filter(({ manifest }) => manifest.exports);
  const directories = [
    putPrograms(join(scratch, 'isthmus'), common(), root),
    ...libraries.map((library) => putLibrary(join(scratch, library.path), library, common(library.path))),
  ];
  for (const directory of directories) cpSync(join(root, 'LICENSE'), join(directory, 'LICENSE'));
  cpSync(join(root, 'README.md'), join(directories[0], 'README.md'));
  const [program, ...args] = npm('pack', '--json', `--pack-destination=${to}`, ...directories);
  const { status, output } = await command([program, ...args, '--loglevel=error'], { cwd: scratch, timeout: PACK_MS });
  if (status !== 0) throw new Error(`npm pack: ${output}`);
  return JSON.parse(output.slice(output.indexOf('['))).map(({ filename }) => join(to, filename));
}

function fieldsOf({ version, description, license, engines }) {
  return { version, description, license, type: 'module', engines };
}

/** Puts together the package of all programs: each as its bundle, which needs no other package. */
function putPrograms(directory, common, root) {
  const names = copyPrograms(directory, '/usr/bin/env node', root);
  const bin = Object.fromEntries(names.map((name) => [name, `bin/${name}.js`]));
  const parts = bill(root);
  write(join(directory, 'sbom.cdx.json'), `${JSON.stringify(parts, undefined, 1)}\n`);
  write(join(directory, 'licences.txt'), licences(parts, root));
  write(join(directory, 'package.json'), JSON.stringify({ name: 'isthmus', ...common, bin }, undefined, 2));
  return directory;
}

/**
 * Copies each program's bundle below `programs`, and what starts it below `bin`.
 * @param node what the first line of the latter names
 * @returns the programs' names
 */
export function copyPrograms(directory, node, root) {
  return programs([], root).flatMap(({ dir, manifest }) => {
    const bundles = join(dir, 'dist', 'bundle');
    const current = join(bundles, readJson(join(bundles, 'current.json')).directory);
    for (const name of Object.keys(manifest.bin)) {
      copyFiles(current, join(directory, 'programs', name), (path) => !OF_WORKSPACE.test(path));
      write(join(directory, 'bin', `${name}.js`), `#!${node}\nimport '../programs/${name}/main.js';\n`);
    }
    return Object.keys(manifest.bin);
  });
}

function putLibrary(directory, { dir, manifest: { name, exports, dependencies } }, common) {
  copyFiles(join(dir, 'dist'), join(directory, 'dist'), (path) => !FOR_TESTS.test(path) && !OF_WORKSPACE.test(path));
  const entries = Object.entries(exports).filter(([path]) => !FOR_TESTS.test(path));
  const published = Object.fromEntries(
    entries.map(([path, { types, default: file }]) => [path, { types, default: file }]),
  );
  const manifest = { name, ...common, exports: published, dependencies };
  write(join(directory, 'package.json'), JSON.stringify(manifest, undefined, 2));
  return directory;
}

function copyFiles(from, to, accept) {
  cpSync(from, to, { recursive: true, filter: (path) => accept(relative(from, path)) });
}

function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

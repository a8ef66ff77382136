import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { bundlePrograms } from './bundle.mjs';
import { command, npm } from './command.mjs';
import { bill, licences } from './image-bill.mjs';
import { putStandAlone } from './standalone.mjs';
import { copyPrograms, ROOT, readJson, workspacePackages } from './workspace.mjs';

const PACK_MS = 5 * 60_000;

/**
 * Packs for npm: one package with all programs, and each library that stands alone. What else the programs consist of is in their bundles. In
 * the workspace, packages are private, so that nobody publishes them from there by mistake; what is packed has a manifest of its own.
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
  const libraries = workspacePackages(root).filter(({ manifest }) => manifest.standsAlone);
  const directories = [await putPrograms(join(scratch, 'isthmus'), common(), root)];
  for (const library of libraries) {
    directories.push(await putAlone(join(scratch, library.path), library, common(library.path), root));
  }
  cpSync(join(root, 'README.md'), join(directories[0], 'README.md'));
  return npmPack(directories, { to, scratch, root });
}

/**
 * Packs one library that stands alone.
 * @param path its directory: `libs/wire`
 * @returns the tarball's path
 */
export async function packAlone(path, { to, scratch, root = ROOT }) {
  const library = workspacePackages(root).find((each) => each.path === path);
  if (!library?.manifest.standsAlone) throw new Error(`${path} is no library that stands alone`);
  const directory = join(scratch, path);
  await putAlone(directory, library, fieldsOf(readJson(join(root, 'package.json'))), root);
  const [file] = await npmPack([directory], { to, scratch, root });
  return file;
}

async function npmPack(directories, { to, scratch, root }) {
  for (const directory of directories) cpSync(join(root, 'LICENSE'), join(directory, 'LICENSE'));
  const [program, ...args] = npm('pack', '--json', `--pack-destination=${to}`, ...directories);
  const { status, output } = await command([program, ...args, '--loglevel=error'], { cwd: scratch, timeout: PACK_MS });
  if (status !== 0) throw new Error(`npm pack: ${output}`);
  return JSON.parse(output.slice(output.indexOf('['))).map(({ filename }) => join(to, filename));
}

function fieldsOf({ version, description, license, engines }) {
  return { version, description, license, type: 'module', engines };
}

/** Puts together the package of all programs: each as its bundle, which needs no other package. */
async function putPrograms(directory, common, root) {
  const bundles = `${directory}-bundles`;
  await bundlePrograms(bundles, root);
  const names = copyPrograms(bundles, directory, '/usr/bin/env node');
  const bin = Object.fromEntries(names.map((name) => [name, `bin/${name}.js`]));
  // kubectl runs what it finds under this name as `kubectl isthmus`.
  bin['kubectl-isthmus'] = bin.isthmus;
  const parts = bill(root);
  write(join(directory, 'sbom.cdx.json'), `${JSON.stringify(parts, undefined, 1)}\n`);
  write(join(directory, 'licences.txt'), licences(parts, root));
  write(join(directory, 'package.json'), JSON.stringify({ name: 'isthmus', ...common, bin }, undefined, 2));
  return directory;
}

/** A library that needs no other package, with what it uses of other packages of the workspace, and its README. */
async function putAlone(directory, { dir, path, manifest: { name, description } }, common, root) {
  const { module, types } = await putStandAlone({ directory, path, scratch: `${directory}-types`, root });
  cpSync(join(dir, 'README.md'), join(directory, 'README.md'));
  const exports = { '.': { types: `./${types}`, default: `./${module}` } };
  write(join(directory, 'package.json'), JSON.stringify({ name, ...common, description, exports }, undefined, 2));
  return directory;
}

function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { build } from 'esbuild';
import { bundlePrograms, ESBUILD } from './bundle.mjs';
import { bin, command, npm } from './command.mjs';
import { copyPrograms, filesBelow, ROOT, readJson, workspacePackages } from './workspace.mjs';

const PACK_MS = 5 * 60_000;
const COMPILE_MS = 5 * 60_000;

/**
 * Packs for npm: one package with all programs, and each library that stands alone. What else the programs consist of is in their bundles. In
 * the workspace, packages are private, so that nobody publishes them from there by mistake; what is packed has a manifest of its own.
 * @param to the directory for the tarballs
 * @param scratch an empty directory
 * @param repository the address of the repository, which npm compares with where a package was built; undefined if there is none
 * @returns the tarballs' paths, the programs' first
 */
export async function packAll({ to, scratch, repository }) {
  const common = (path) => ({
    ...fieldsOfAll(),
    ...(repository && { repository: { type: 'git', url: repository, ...(path && { directory: path }) } }),
  });
  const libraries = workspacePackages().filter(({ manifest }) => manifest.standsAlone);
  const directories = [await putPrograms(join(scratch, 'isthmus'), common())];
  for (const library of libraries) directories.push(await putAlone(scratch, library, common(library.path)));
  cpSync(join(ROOT, 'README.md'), join(directories[0], 'README.md'));
  return npmPack(directories, { to, scratch });
}

/**
 * Packs one library that stands alone.
 * @param path its directory: `libs/wire`
 * @returns the tarball's path
 */
export async function packAlone(path, { to, scratch }) {
  const library = workspacePackages().find((each) => each.path === path);
  if (!library?.manifest.standsAlone) throw new Error(`${path} is no library that stands alone`);
  const [file] = await npmPack([await putAlone(scratch, library, fieldsOfAll())], { to, scratch });
  return file;
}

async function npmPack(directories, { to, scratch }) {
  for (const directory of directories) cpSync(join(ROOT, 'LICENSE'), join(directory, 'LICENSE'));
  const [program, ...args] = npm('pack', '--json', `--pack-destination=${to}`, ...directories);
  const { status, output } = await command([program, ...args, '--loglevel=error'], { cwd: scratch, timeout: PACK_MS });
  if (status !== 0) throw new Error(`npm pack: ${output}`);
  return JSON.parse(output.slice(output.indexOf('['))).map(({ filename }) => join(to, filename));
}

/** What the manifests of all that is packed say alike. */
function fieldsOfAll() {
  const { version, description, license, engines } = readJson(join(ROOT, 'package.json'));
  return { version, description, license, type: 'module', engines };
}

/** Puts together the package of all programs: each as its bundle, which needs no other package. */
async function putPrograms(directory, common) {
  const bundles = `${directory}-bundles`;
  await bundlePrograms(bundles);
  const names = copyPrograms(bundles, directory, '/usr/bin/env node');
  const commands = Object.fromEntries(names.map((name) => [name, `bin/${name}.js`]));
  // kubectl runs what it finds under this name as `kubectl isthmus`.
  commands['kubectl-isthmus'] = commands.isthmus;
  write(join(directory, 'package.json'), JSON.stringify({ name: 'isthmus', ...common, bin: commands }, undefined, 2));
  return directory;
}

/**
 * Puts together a library that needs no other package: one module with what it uses of other packages of the workspace, the types of all of
 * them, and its README.
 */
async function putAlone(scratch, { dir, path, manifest: { name, description } }, common) {
  const directory = join(scratch, path);
  const module = 'dist/index.js';
  const entryPoints = [join(ROOT, path, 'src/index.ts')];
  const { metafile } = await build({ ...ESBUILD, entryPoints, outfile: join(directory, module), absWorkingDir: ROOT });
  const foreign = Object.keys(metafile.inputs).find((input) => input.startsWith('node_modules/'));
  if (foreign) throw new Error(`${path} needs ${foreign}: a library that stands alone has it not`);
  const types = `${directory}-types`;
  await declare(path, types);
  for (const file of filesBelow(types, (each) => each.endsWith('.d.ts'))) {
    const to = typesOf(relative(types, file));
    const up = relative(dirname(to), 'dist');
    const text = readFileSync(file, 'utf8')
      .replace(/'@isthmus\/([^'/]+)'/g, `'${up}/$1/index.js'`)
      .replace(/'(\.[^']*)\.ts'/g, "'$1.js'");
    if (/['"]@isthmus\//.test(text)) throw new Error(`${to} imports another package in a way that is not known here`);
    write(join(directory, to), text);
  }
  cpSync(join(dir, 'README.md'), join(directory, 'README.md'));
  const exports = { '.': { types: `./${typesOf(join(path, 'src/index.d.ts'))}`, default: `./${module}` } };
  write(join(directory, 'package.json'), JSON.stringify({ name, ...common, description, exports }, undefined, 2));
  return directory;
}

/** `libs/wire/src/x.d.ts` is at `dist/wire/x.d.ts`. */
function typesOf(file) {
  return file.replace(/^libs\/([^/]+)\/src\//, 'dist/$1/');
}

/** Writes the types of a package, and of those that it uses. */
async function declare(path, to) {
  const packages = workspacePackages();
  const used = Object.keys(packages.find((each) => each.path === path).manifest.dependencies ?? {});
  const own = [path, ...used.map((name) => packages.find(({ manifest }) => manifest.name === name).path)];
  const indexOf = (each) => join(ROOT, each, 'src/index.ts');
  const compilerOptions = {
    ...{ noEmit: false, incremental: false, declaration: true, emitDeclarationOnly: true, stripInternal: true },
    ...{ rootDir: ROOT, outDir: to, tsBuildInfoFile: null },
    ...{ types: ['node'], typeRoots: [join(ROOT, 'node_modules/@types')] },
    // A file that the compiler reaches first through node_modules is another's, and has no types written.
    paths: Object.fromEntries(packages.map(({ manifest, path }) => [manifest.name, [indexOf(path)]])),
  };
  const config = join(to, 'tsconfig.json');
  mkdirSync(to, { recursive: true });
  const files = own.map(indexOf);
  writeFileSync(config, JSON.stringify({ extends: join(ROOT, 'tsconfig.base.json'), compilerOptions, files }));
  const { status, output } = await command([bin('tsc'), '--project', config], { timeout: COMPILE_MS });
  if (status !== 0) throw new Error(`tsc: ${output}`);
}

function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

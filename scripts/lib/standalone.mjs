import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { build } from 'esbuild';
import { bin, command } from './command.mjs';
import { filesBelow, workspacePackages } from './workspace.mjs';

const COMPILE_MS = 5 * 60_000;

const OPTIONS = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node22.18',
  metafile: true,
  logLevel: 'silent',
};

/**
 * Puts together a library that needs no other package: one module with what it uses of other packages of the workspace, and the types of all
 * of them.
 * @param scratch an empty directory
 * @returns where its module and its types are in `directory`
 */
export async function putStandAlone({ directory, path, scratch, root }) {
  const module = 'dist/index.js';
  const entryPoints = [join(root, path, 'src/index.ts')];
  const { metafile } = await build({ ...OPTIONS, entryPoints, outfile: join(directory, module), absWorkingDir: root });
  const foreign = Object.keys(metafile.inputs).find((input) => input.startsWith('node_modules/'));
  if (foreign) throw new Error(`${path} needs ${foreign}: a library that stands alone has it not`);
  await declare(path, scratch, root);
  for (const file of filesBelow(scratch).filter((each) => each.endsWith('.d.ts'))) {
    const to = typesOf(relative(scratch, file));
    const up = relative(dirname(to), 'dist');
    const text = readFileSync(file, 'utf8')
      .replace(/'@isthmus\/([^'/]+)'/g, `'${up}/$1/index.js'`)
      .replace(/'(\.[^']*)\.ts'/g, "'$1.js'");
    if (/['"]@isthmus\//.test(text)) throw new Error(`${to} imports another package in a way that is not known here`);
    mkdirSync(dirname(join(directory, to)), { recursive: true });
    writeFileSync(join(directory, to), text);
  }
  return { module, types: typesOf(join(path, 'src/index.d.ts')) };
}

/** `libs/wire/src/x.d.ts` is at `dist/wire/x.d.ts`. */
function typesOf(file) {
  return file.replace(/^libs\/([^/]+)\/src\//, 'dist/$1/');
}

/** Writes the types of a package, and of those that it uses. */
async function declare(path, to, root) {
  const packages = workspacePackages(root);
  const used = Object.keys(packages.find((each) => each.path === path).manifest.dependencies ?? {});
  const paths = [path, ...used.map((name) => packages.find(({ manifest }) => manifest.name === name).path)];
  const compilerOptions = {
    ...{ noEmit: false, incremental: false, declaration: true, emitDeclarationOnly: true, stripInternal: true },
    ...{
      rootDir: root,
      outDir: to,
      tsBuildInfoFile: null,
      types: ['node'],
      typeRoots: [join(root, 'node_modules/@types')],
    },
  };
  const config = join(to, 'tsconfig.json');
  mkdirSync(to, { recursive: true });
  const files = paths.map((each) => join(root, each, 'src/index.ts'));
  writeFileSync(config, JSON.stringify({ extends: join(root, 'tsconfig.json'), compilerOptions, files, include: [] }));
  const { status, output } = await command([bin('tsc'), '--project', config], { timeout: COMPILE_MS });
  if (status !== 0) throw new Error(`tsc: ${output}`);
}

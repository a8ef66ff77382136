import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { ROOT, workspacePackages } from './workspace.mjs';

const OPTIONS = {
  ...{ bundle: true, splitting: true, format: 'esm', platform: 'node', target: 'node20', absWorkingDir: ROOT },
  // What CommonJS packages ask for Node's own modules with.
  banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
  // Names and lines stay as they are, for stack traces; `node --enable-source-maps` shows those of the sources.
  ...{ write: false, metafile: true, sourcesContent: false, logLevel: 'silent' },
};

/** The workspace's packages that are programs: those with a command. */
function programs() {
  return workspacePackages().filter(({ manifest }) => manifest.bin);
}

/**
 * Puts each program, with all that it imports, into a few files in its `dist/bundle`: `main.js`, and one for each part that is
 * loaded when it is asked for. Loading 340 modules takes a program twice the processor time and 15 MB more than loading one.
 */
export async function bundle() {
  const built = buildInfos();
  const mains = programs().map(({ dir }) => join(dir, 'dist', 'main.js'));
  const looked = await build({ ...OPTIONS, entryPoints: mains, outdir: ROOT });
  const plugins = [withNames(lazyCommonJs(looked.metafile))];
  for (const main of mains) {
    const outdir = join(dirname(main), 'bundle');
    const made = await build({ ...OPTIONS, entryPoints: [main], outdir, plugins, sourcemap: true });
    const madeOf = { path: join(outdir, 'made-of.json'), contents: stampOf(outdir, made, built) };
    replace(outdir, [...made.outputFiles, madeOf]);
  }
}

/** The modules of CommonJS that are loaded by `import()`, as it names them. */
function lazyCommonJs({ inputs }) {
  const lazy = Object.values(inputs).flatMap(({ imports }) => imports.filter(({ kind }) => kind === 'dynamic-import'));
  return new Set(lazy.filter(({ path }) => inputs[path]?.format === 'cjs').map(({ original }) => original));
}

/** Gives these the names that they have on Node: esbuild gives CommonJS behind `import()` nothing but a default. */
function withNames(modules) {
  return {
    name: 'names of lazy CommonJS',
    setup({ onResolve, onLoad, resolve }) {
      const filter = new RegExp(`^(${[...modules].map((name) => name.replace(/[.+]/g, '\\$&')).join('|')})$`);
      onResolve({ filter }, async ({ path: name, kind, resolveDir, importer }) => {
        if (kind !== 'dynamic-import') return undefined;
        const { path } = await resolve(name, { kind: 'import-statement', resolveDir });
        return { path, namespace: 'lazy', pluginData: createRequire(importer).resolve(name) };
      });
      onLoad({ filter: /./, namespace: 'lazy' }, async ({ path, pluginData: onNode }) => {
        const exported = Object.keys(await import(pathToFileURL(onNode)));
        const names = exported.filter((name) => name !== 'default' && /^[a-z]\w*$/i.test(name));
        const from = `from ${JSON.stringify(path)};`;
        const contents = `export { ${names} } ${from} import all ${from} export default all;`;
        return { contents, resolveDir: dirname(path) };
      });
    },
  };
}

/** tsc's build info of each package that is built, by the package's path. */
function buildInfos() {
  const found = workspacePackages().map(({ dir, path }) => [path, join(dir, 'dist', '.tsbuildinfo')]);
  return new Map(
    found.filter(([, file]) => existsSync(file)).map(([path, file]) => [path, { file, ...statSync(file) }]),
  );
}

/** What a bundle was made of, as `launch` compares it with what is there. */
function stampOf(out, { metafile }, built) {
  const inputs = Object.keys(metafile.inputs);
  const used = [...built].filter(([path]) => inputs.some((input) => input.startsWith(`${path}/dist/`)));
  const entries = used.map(([, { file, mtimeMs, size }]) => [relative(out, file), { mtimeMs, size }]);
  return JSON.stringify(Object.fromEntries(entries));
}

/** Puts files in the place of a directory's; a program that starts meanwhile finds the old ones or the new. */
function replace(directory, files) {
  mkdirSync(directory, { recursive: true });
  // The entry is written when all that it imports is there.
  for (const { path, contents } of [...files].sort((a, b) => Number(isEntry(a)) - Number(isEntry(b)))) {
    const draft = `${path}.${process.pid}`;
    writeFileSync(draft, contents);
    renameSync(draft, path);
  }
  const current = new Set(files.map(({ path }) => basename(path)));
  const old = readdirSync(directory).filter((name) => /\.(js|json|map)$/.test(name) && !current.has(name));
  for (const name of old) rmSync(join(directory, name), { force: true });
}

function isEntry({ path }) {
  return basename(path) === 'main.js';
}

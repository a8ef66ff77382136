import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { commandsOf, programs, ROOT } from './workspace.mjs';

/** Of each bundle. Lines stay separate and names nearly unchanged, for stack traces; `node --enable-source-maps` shows those of the sources. */
export const ESBUILD = {
  ...{ bundle: true, format: 'esm', platform: 'node', target: 'node22.18' },
  ...{ metafile: true, logLevel: 'silent' },
};

/**
 * Bundles each program from its sources into a few files below `to`: `NAME/main.js`, and one for each part that is loaded on demand. Loading
 * 340 modules takes a program twice the processor time and 15 MB more than loading one.
 */
export async function bundlePrograms(to, root = ROOT) {
  const options = { ...ESBUILD, splitting: true, sourcemap: true, sourcesContent: false, absWorkingDir: root };
  const all = programs(root);
  const plugins = [withPage(root), withNames(root), withPlaces(root), withoutUndici()];
  // Nothing is written any more once this has failed.
  const ends = await Promise.allSettled(
    all.flatMap((program) =>
      commandsOf(program).map(async (name) => {
        const outdir = join(to, name);
        const banner = { js: bannerOf(relative(outdir, root)) };
        const made = await build({
          ...options,
          ...{ entryPoints: [join(program.dir, 'src', 'main.ts')], outdir, plugins, banner },
        });
        for (const path of Object.keys(made.metafile.outputs)) refuseOwnPlace(join(root, path), banner.js.length);
      }),
    ),
  );
  const failed = ends.find(({ status }) => status === 'rejected');
  if (failed) throw failed.reason;
}

/** Defines `require`, with which CommonJS packages load Node's own modules, and the root from which their paths are found. */
function bannerOf(root) {
  return [
    "import { createRequire as __createRequire } from 'node:module';",
    "import { fileURLToPath as __fileURLToPath } from 'node:url';",
    'const require = __createRequire(import.meta.url);',
    `const __root = __fileURLToPath(new URL('${root}/', import.meta.url));`,
  ].join(' ');
}

/** Throws if a module asks for its own path: it would get that of its bundle. */
function refuseOwnPlace(file, start) {
  if (!file.endsWith('.js')) return;
  const text = readFileSync(file, 'utf8').slice(start);
  const at = text.search(/\bimport\.meta\b/);
  if (at < 0) return;
  const line = text.slice(0, at).split('\n').length;
  throw new Error(
    `${basename(file)}, line ${line}: import.meta stays in a bundle, where it means the bundle and not the module`,
  );
}

/** Puts the console's page into a program's bundle, as a part that is loaded with the first request. */
function withPage(root) {
  const page = pathToFileURL(join(root, 'libs', 'console', 'src', 'page.ts')).href;
  let made;
  return {
    name: 'page of the console',
    setup({ onLoad }) {
      onLoad({ filter: /[\\/]libs[\\/]console[\\/]src[\\/]page\.ts$/ }, async () => {
        made ??= import(page).then(({ bundlePage }) => bundlePage());
        return { contents: `export const bundlePage = async () => (${JSON.stringify(await made)});` };
      });
    },
  };
}

/** Gives CommonJS packages the `__dirname` and `__filename` that they have on Node. */
function withPlaces(root) {
  return {
    name: 'places of CommonJS',
    setup({ onLoad }) {
      onLoad({ filter: /\/node_modules\/.*\.c?js$/ }, ({ path, namespace }) => {
        if (namespace !== 'file') return undefined;
        const contents = readFileSync(path, 'utf8');
        const places = { __dirname: dirname(path), __filename: path };
        const asked = Object.keys(places).filter((name) => contents.includes(name));
        if (asked.length === 0) return undefined;
        const given = asked.map((name) => `${name} = __root + ${JSON.stringify(relative(root, places[name]))}`);
        // On the first line, so that line numbers do not change.
        return { contents: `var ${given.join(', ')}; ${contents}` };
      });
    },
  };
}

/**
 * Imports node:http by `require`. To import it as a module, Node reads each of its exports, and one is WebSocket: that loads all of undici,
 * which takes 6 MB and 10 ms, and no program uses it.
 */
function withoutUndici() {
  return {
    name: 'node:http without undici',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^(node:)?http$/ }, ({ kind }) =>
        kind === 'import-statement' ? { path: 'http', namespace: 'required', sideEffects: false } : undefined,
      );
      onLoad({ filter: /./, namespace: 'required' }, () => ({ contents: "module.exports = require('node:http');" }));
    },
  };
}

/** Gives packages that are loaded by `import()` the names that they have on Node: of CommonJS, esbuild gives only the default export. */
function withNames(root) {
  return {
    name: 'names of lazy packages',
    setup({ onResolve, onLoad, resolve }) {
      onResolve({ filter: /^[^./]/ }, async ({ path: name, kind, resolveDir, importer }) => {
        if (kind !== 'dynamic-import') return undefined;
        const { path, external } = await resolve(name, { kind: 'import-statement', resolveDir });
        if (external || !path.includes('/node_modules/')) return undefined;
        const onNode = createRequire(importer).resolve(name);
        return { path: relative(root, path), namespace: 'lazy', pluginData: { path, onNode } };
      });
      onLoad({ filter: /./, namespace: 'lazy' }, async ({ pluginData: { path, onNode } }) => {
        const names = Object.keys(await import(pathToFileURL(onNode))).filter((name) => /^[a-z]\w*$/i.test(name));
        // Not by its whole path, which would be in the source map, and so in the names of files.
        return {
          contents: `export { ${names} } from ${JSON.stringify(`./${basename(path)}`)};`,
          resolveDir: dirname(path),
        };
      });
    },
  };
}

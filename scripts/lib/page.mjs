import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import { build } from 'esbuild';

const PACKAGE = join('libs', 'console');

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Served as they are written. */
const PLAIN = ['index.html', 'icon.svg'];

/**
 * Bundles the console's page from the output of tsc into one script and one style sheet, and puts them with its other files into a module
 * that a program's bundle takes in. Does nothing in a workspace without a console, or whose console is not built.
 */
export async function bundlePage(root) {
  const dir = join(root, PACKAGE);
  const main = join(dir, 'dist', 'main.js');
  if (!existsSync(main)) return;
  const { outputFiles } = await build({
    entryPoints: { console: main, 'console-style': join(dir, 'src', 'style.css') },
    outdir: dir,
    absWorkingDir: root,
    ...{
      bundle: true,
      minify: true,
      format: 'esm',
      target: 'es2022',
      legalComments: 'none',
      write: false,
      logLevel: 'silent',
    },
  });
  const text = (name) => outputFiles.find(({ path }) => path.endsWith(name)).text;
  const files = {
    ...Object.fromEntries(PLAIN.map((name) => [name, readFileSync(join(dir, 'src', name), 'utf8')])),
    'console.js': text('console.js'),
    'console.css': text('console-style.css'),
  };
  const typed = Object.entries(files).map(([name, body]) => [name, { type: TYPES[extname(name)], body }]);
  place(join(dir, 'dist', 'built.js'), `export const FILES = ${JSON.stringify(Object.fromEntries(typed))};\n`);
}

/** Leaves a file alone that is right, and lets nobody read half of a new one. */
function place(file, text) {
  if (existsSync(file) && readFileSync(file, 'utf8') === text) return;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.${process.pid}`, text);
  renameSync(`${file}.${process.pid}`, file);
}

import { readFileSync } from 'node:fs';
import { build } from 'esbuild';

/** The page's files, by their names. */
export type PageFiles = Readonly<Record<string, { readonly type: string; readonly body: string }>>;

const TYPES = {
  script: 'text/javascript; charset=utf-8',
  style: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  svg: 'image/svg+xml',
};

/** Bundles the page from its sources. The bundles of programs hold the result instead (scripts/lib/bundle.mjs). */
export async function bundlePage(): Promise<PageFiles> {
  const source = (name: string) => new URL(name, import.meta.url);
  const { outputFiles } = await build({
    entryPoints: { console: source('main.tsx').pathname, style: source('style.css').pathname },
    outdir: source('.').pathname,
    jsx: 'automatic',
    jsxImportSource: 'preact',
    ...{ bundle: true, minify: true, format: 'esm', target: 'es2022' },
    ...{ legalComments: 'none', write: false, logLevel: 'silent' },
  });
  const built = (name: string) => outputFiles.find(({ path }) => path.endsWith(name))?.text ?? '';
  return {
    'index.html': { type: TYPES.html, body: readFileSync(source('index.html'), 'utf8') },
    'icon.svg': { type: TYPES.svg, body: readFileSync(source('icon.svg'), 'utf8') },
    'console.js': { type: TYPES.script, body: built('console.js') },
    'console.css': { type: TYPES.style, body: built('style.css') },
  };
}

import type { PageFiles } from './page.ts';

export type { PageFiles } from './page.ts';

let files: Promise<PageFiles> | undefined;

/** Resolves with the page's files. They are made or loaded with the first request. */
export function pageFiles(): Promise<PageFiles> {
  files ??= import('./page.ts').then(({ bundlePage }) => bundlePage());
  return files;
}

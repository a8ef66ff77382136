import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Runs something whose tests and loads start the programs' bundles, made for it from the sources, as they are shipped. */
export async function withBundles(work) {
  // esbuild is there only after the installation.
  const { bundlePrograms } = await import('./bundle.mjs');
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-programs-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  await bundlePrograms(directory);
  process.env.ISTHMUS_PROGRAMS = directory;
  return work();
}

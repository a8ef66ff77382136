import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, cp, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { ROOT } from './runtime.ts';

const BUILD_MS = 15 * 60_000;

const CACHE = `${ROOT}node_modules/.cache/isthmus`;

const run = promisify(execFile);

/** Why there are no Go programs here, or false when there are: the `skip` option of a test. */
export function goMissing(): string | false {
  return spawnSync('go', ['version']).status === 0 ? false : 'go is not installed (https://go.dev/doc/install)';
}

/** Changes what a program's modules are built from: `vendor` is where their sources are, and are the program's own. */
export type Patch = (vendor: string) => Promise<void>;

/**
 * The path of a Go program under test/compat, built once for each state of its sources.
 * @param patch changes its modules' sources first
 */
export async function goProgram(name: string, patch?: Patch): Promise<string> {
  const sources = `${ROOT}test/compat/${name}`;
  const hash = createHash('sha256');
  for (const file of (await readdir(sources)).sort()) hash.update(await readFile(`${sources}/${file}`));
  if (patch) hash.update(String(patch));
  const path = `${CACHE}/${name}-${hash.digest('hex').slice(0, 16)}`;
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  if (exists) return path;
  await mkdir(CACHE, { recursive: true });
  // Under a name of its own first: another test file may build at the same time.
  const fresh = `${path}-${process.pid}`;
  if (patch) await buildPatched(sources, fresh, patch);
  else await run('go', ['build', '-o', fresh, '.'], { cwd: sources, timeout: BUILD_MS });
  await rename(fresh, path);
  return path;
}

/** From a copy, with its modules vendored: what Go keeps of modules for all programs is left as it is. */
async function buildPatched(sources: string, path: string, patch: Patch): Promise<void> {
  const cwd = `${path}-sources`;
  try {
    await cp(sources, cwd, { recursive: true });
    await run('go', ['mod', 'vendor'], { cwd, timeout: BUILD_MS });
    await patch(`${cwd}/vendor`);
    await run('go', ['build', '-mod=vendor', '-o', path, '.'], { cwd, timeout: BUILD_MS });
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}

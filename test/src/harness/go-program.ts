import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { madeOnce } from './made-once.ts';
import { ROOT } from './runtime.ts';

const BUILD_MS = 15 * 60_000;

/** How often a build says that it goes on. */
const SAY_MS = 30_000;

const CACHE = `${ROOT}node_modules/.cache/isthmus`;

const run = promisify(execFile);

/** Why this machine cannot build Go programs, or false if it can: for a test's `skip`. */
export function goMissing(): string | false {
  return spawnSync('go', ['version']).status === 0 ? false : 'go is not installed (https://go.dev/doc/install)';
}

/** Changes the sources of a program's modules before the build. `vendor` holds the program's own copy of them. */
export type Patch = (vendor: string) => Promise<void>;

interface GoBuild {
  /** Changes the sources of its modules before the build. */
  readonly patch?: Patch;
  /** Told that a build begins, how long it has run every half minute, and how long it took. Default: nobody. */
  readonly say?: (line: string) => void;
}

/** Returns the path of a Go program under test/compat, which is built once for each state of its sources. */
export async function goProgram(name: string, { patch, say = () => {} }: GoBuild = {}): Promise<string> {
  const sources = `${ROOT}test/compat/${name}`;
  const hash = createHash('sha256');
  for (const file of (await readdir(sources)).sort()) hash.update(await readFile(`${sources}/${file}`));
  if (patch) hash.update(String(patch));
  return builtOnce(`${name}-${hash.digest('hex').slice(0, 16)}`, async (fresh) => {
    using _saying = saying(`the Go program test/compat/${name}, once: with its modules this takes minutes`, say);
    if (patch) await buildPatched(sources, fresh, patch);
    else await run('go', ['build', '-o', fresh, '.'], { cwd: sources, timeout: BUILD_MS });
  });
}

/** Says what is built, and for how long, until it is disposed of. */
export function saying(what: string, say: (line: string) => void): Disposable {
  const start = performance.now();
  const seconds = () => `${((performance.now() - start) / 1000).toFixed(0)} s`;
  say(`building ${what} ...`);
  const timer = setInterval(() => say(`... still building, after ${seconds()}`), SAY_MS);
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
      say(`... built in ${seconds()}`);
    },
  };
}

/** @param build puts the program at a path that it is given */
async function builtOnce(name: string, build: (fresh: string) => Promise<void>): Promise<string> {
  const path = `${CACHE}/${name}`;
  await mkdir(CACHE, { recursive: true });
  await madeOnce(path, BUILD_MS, async () => {
    const fresh = `${path}-${process.pid}`;
    await build(fresh);
    await rename(fresh, path);
  });
  return path;
}

/** Builds Go programs under test/compat before the tests that would wait for them, each in its place, and says so. */
export async function buildGoPrograms(names: readonly string[], say: (line: string) => void): Promise<void> {
  if (goMissing()) return;
  for (const name of names) await goProgram(name, { say });
}

/** Returns the path of a program of a published Go module, such as example.com/module/cmd/name@v1.2.3, which is built once for each version. */
export async function goInstalled(module: string): Promise<string> {
  const [, name, version] = /\/([^/]+)@(.+)$/.exec(module) ?? [];
  return builtOnce(`${name}-${version}`, async (fresh) => {
    const bin = `${fresh}-bin`;
    try {
      await run('go', ['install', module], { env: { ...process.env, GOBIN: bin }, timeout: BUILD_MS });
      await rename(`${bin}/${name}`, fresh);
    } finally {
      await rm(bin, { recursive: true, force: true });
    }
  });
}

/**
 * Returns the path of a package's program, of a Go module of ours that names the versions, which is built once for each `name`.
 * @param linkerFlags what the program says of itself
 */
export function goBuilt(
  name: string,
  module: string,
  pack: string,
  linkerFlags: readonly string[] = [],
): Promise<string> {
  const flags = ['-s -w', ...linkerFlags].join(' ');
  const mark = createHash('sha256').update(flags).digest('hex').slice(0, 8);
  return builtOnce(`${name}-${mark}`, async (fresh) => {
    const env = { ...process.env, CGO_ENABLED: '0' };
    const args = ['-trimpath', '-buildvcs=false', '-mod=readonly', '-ldflags', flags, '-o', fresh, pack];
    await run('nice', ['-n', '15', 'go', 'build', ...args], { cwd: module, env, timeout: BUILD_MS });
  });
}

/** Builds from a copy with vendored modules, so that Go's shared module cache stays as it is. */
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

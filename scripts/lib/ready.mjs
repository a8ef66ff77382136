import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { bin, command, npm, seconds } from './command.mjs';
import { filesBelow, INSTALLED, programs, ROOT, readJson, workspacePackages } from './workspace.mjs';

const OLDEST_NODE = 20;
const LOCK = join(ROOT, 'package-lock.json');
/** For each set of projects that was built, what it was built from. */
const BUILT = join(ROOT, 'node_modules', '.cache', 'isthmus-built');

/** Ends the process with one line where it cannot be done. */
export async function ensureInstalled() {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < OLDEST_NODE) {
    fail(
      `Isthmus needs Node ${OLDEST_NODE} or newer, and this is Node ${process.versions.node} (${process.execPath}).`,
    );
  }
  if (isInstalled()) return;
  const { status, output } = await timed('Installing the dependencies (npm ci)', () => command(npm('ci')));
  if (status !== 0) fail(`${output}\nnpm ci failed with status ${status}.`);
}

/**
 * Installs and builds; ends the process where either fails.
 * @param projects directories of what to build with all that they need; none for everything, tests as well
 */
export async function ensureReady(projects = []) {
  await ensureInstalled();
  if (readStamp(projects) === fingerprint() && (await isBundled(projects))) return;
  const { status, output } = await timed('Building', () => build(projects));
  if (status !== 0) fail(`${output}\nThe build failed with status ${status}.`);
}

/** Runs tsc and then the bundler; resolves with the status and output of the last that ran. */
export async function build(projects = []) {
  let result = await command([process.execPath, bin('tsc'), '-b', ...projects]);
  if (result.status === 0) result = await command([process.execPath, join(ROOT, 'scripts', 'bundle.mjs'), ...projects]);
  if (result.status === 0) {
    mkdirSync(BUILT, { recursive: true });
    writeFileSync(stampOf(projects), fingerprint());
  }
  return result;
}

async function timed(what, run) {
  process.stderr.write(`${what} ... `);
  const start = performance.now();
  const result = await run();
  process.stderr.write(`${seconds(performance.now() - start)}\n`);
  return result;
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** Whether node_modules holds what the lock file asks for, by content: a checkout changes times of files, not this. */
function isInstalled() {
  const installed = join(ROOT, INSTALLED);
  if (!existsSync(installed)) return false;
  const present = readJson(installed).packages;
  return Object.entries(readJson(LOCK).packages).every(([path, wanted]) => {
    const found = present[path];
    // Packages for other platforms are in the lock file and on no disk.
    if (path === '' || (!found && wanted.optional)) return true;
    return found?.version === wanted.version && found?.integrity === wanted.integrity;
  });
}

/**
 * Changes when a source or a setting changes, and also when somebody else built or removed the output: tsc's own
 * build info is part of it.
 */
function fingerprint() {
  const hash = createHash('sha256');
  const ours = workspacePackages().flatMap(({ dir }) => [
    ...filesBelow(join(dir, 'src')),
    join(dir, 'package.json'),
    join(dir, 'tsconfig.json'),
    join(dir, 'dist', '.tsbuildinfo'),
  ]);
  for (const path of [join(ROOT, 'tsconfig.base.json'), join(ROOT, 'tsconfig.json'), LOCK, ...ours]) {
    hash.update(`${relative(ROOT, path)}\0`);
    hash.update(existsSync(path) ? readFileSync(path) : 'absent');
  }
  return hash.digest('hex');
}

/**
 * Whether each program of what is built would run from its bundle, by the same question that it asks when it starts: that compares
 * times, which `tsc -b` changes without changing anything else.
 */
async function isBundled(projects) {
  const { currentBundle } = await import('../../libs/service/dist/launch.js');
  return programs(projects).every(({ dir }) => currentBundle(pathToFileURL(join(dir, 'dist/'))));
}

function stampOf(projects) {
  return join(BUILT, projects.length === 0 ? 'all' : projects.join('+').replaceAll('/', '-'));
}

function readStamp(projects) {
  const stamp = stampOf(projects);
  return existsSync(stamp) ? readFileSync(stamp, 'utf8') : '';
}

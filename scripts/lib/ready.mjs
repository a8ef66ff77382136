import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { bin, command, npm, seconds } from './command.mjs';
import { INSTALLED, programs, ROOT, readJson } from './workspace.mjs';

const OLDEST_NODE = 20;
const LOCK = join(ROOT, 'package-lock.json');

/** Ends the process with one line if it cannot install. */
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
 * Installs and builds what is missing. Ends the process if either fails. tsc knows what it has built.
 * @param projects directories to build, with everything they need; empty for everything, including tests
 */
export async function ensureReady(projects = []) {
  await ensureInstalled();
  const { status, output } = await timed('Building', () => build(projects));
  if (status !== 0) fail(`${output}\nThe build failed with status ${status}.`);
}

/** Runs tsc, and then the bundler if a program has no bundle of the current build. */
async function build(projects) {
  const compiled = await command([process.execPath, bin('tsc'), '-b', ...projects]);
  if (compiled.status !== 0 || (await isBundled(projects))) return compiled;
  return command([process.execPath, join(ROOT, 'scripts', 'bundle.mjs'), ...projects]);
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

/** Whether node_modules holds what the lock file asks for. Compares content, since a checkout changes the times of files. */
function isInstalled() {
  const installed = join(ROOT, INSTALLED);
  if (!existsSync(installed)) return false;
  const present = readJson(installed).packages;
  return Object.entries(readJson(LOCK).packages).every(([path, wanted]) => {
    const found = present[path];
    // Packages for other platforms are in the lock file but not on disk.
    if (path === '' || (!found && wanted.optional)) return true;
    return found?.version === wanted.version && found?.integrity === wanted.integrity;
  });
}

/**
 * Whether each built program would run from its bundle. It uses the same check as the program does when it starts. That check compares
 * times, which `tsc -b` changes even if it changes nothing else.
 */
async function isBundled(projects) {
  const { currentBundle } = await import('../../libs/service/dist/current-bundle.js');
  return programs(projects).every(({ dir }) => currentBundle(pathToFileURL(join(dir, 'dist/'))));
}

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { command, npm, seconds } from './command.mjs';
import { ROOT, workspacePackages } from './workspace.mjs';

/** What npm installs for: all there is, or only what the programs of `npm start` need, a quarter of the bytes. */
const EVERYTHING = 'everything';
const PROGRAMS = 'programs';

/**
 * Installs what is missing. Ends the process with npm's words if that fails.
 * @param tools whether also what only tests and checks need
 */
export async function ensureInstalled({ tools = true } = {}) {
  const what = tools ? EVERYTHING : PROGRAMS;
  if (isInstalled(EVERYTHING) || isInstalled(what)) return;
  const start = performance.now();
  process.stderr.write('Installing the dependencies with npm ...\n');
  // `npm ci` removes all that is there first, which a running demo would not survive.
  const isNew = !existsSync(join(ROOT, 'node_modules'));
  const args = isNew && tools ? ['ci'] : ['install', '--no-save', ...(tools ? [] : ofPrograms())];
  const { status, output } = await command(npm(...args, '--no-audit', '--no-fund', '--loglevel=error'));
  if (status !== 0) {
    process.stderr.write(`${output}\nnpm ${args.join(' ')} failed with status ${status}.\n`);
    process.exit(1);
  }
  mkdirSync(join(ROOT, 'node_modules', '.cache'), { recursive: true });
  writeFileSync(stamp(what), lockHash());
  process.stderr.write(`Installed in ${seconds(performance.now() - start)}.\n`);
}

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

/** Arguments of npm: only what the programs need. */
function ofPrograms() {
  const packages = workspacePackages().filter(({ path }) => /^(apps|libs)\//.test(path));
  return packages.map(({ path }) => `--workspace=${path}`);
}

/** `npm ci` by hand removes the stamp with the rest; then npm looks once more, and finds nothing to do. */
function isInstalled(what) {
  return existsSync(stamp(what)) && readFileSync(stamp(what), 'utf8') === lockHash();
}

function stamp(what) {
  return join(ROOT, 'node_modules', '.cache', `installed-${what}`);
}

function lockHash() {
  return createHash('sha256')
    .update(readFileSync(join(ROOT, 'package-lock.json')))
    .digest('hex');
}

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { bin, command, npm } from './command.mjs';
import { withProgress } from './progress.mjs';
import { INSTALLED, programs, projectsBelow, ROOT, readJson, workspacePackages } from './workspace.mjs';

const OLDEST_NODE = 20;
const LOCK = join(ROOT, 'package-lock.json');

/**
 * Ends the process with one line if it cannot install.
 * @param tools whether to install also what only tests and checks need: three quarters of the bytes
 */
export async function ensureInstalled({ tools = true } = {}) {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < OLDEST_NODE) {
    fail(
      `Isthmus needs Node ${OLDEST_NODE} or newer, and this is Node ${process.versions.node} (${process.execPath}).`,
    );
  }
  if (isInstalled(tools)) return;
  const what = 'Installing the dependencies (npm ci), in packages';
  const { status, output } = await withProgress(
    what,
    () => command(npm('ci', ...(tools ? [] : ofPrograms()))),
    installedSoFar(tools),
  );
  if (status !== 0) fail(`${output}\nnpm ci failed with status ${status}.`);
}

/**
 * Installs and builds what is missing. Ends the process if either fails. tsc knows what it has built.
 * @param projects directories to build, with everything they need; empty for everything, including tests
 * @param options as for `ensureInstalled`
 */
export async function ensureReady(projects = [], options = {}) {
  await ensureInstalled(options);
  let building = 0;
  const all = projectsBelow(projects).length;
  // `tsc -b --verbose` names each package when it begins to build it, or finds that it need not.
  const onOutput = (text) => {
    building += [...text.matchAll(/ - (?:Building project|Project .* is up to date)/g)].length;
  };
  const look = () => [Math.max(0, building - 1), all];
  const { status, output } = await withProgress('Building, in packages', () => compile(projects, onOutput), look);
  if (status !== 0) fail(`${output}\nThe build failed with status ${status}.`);
  if (await isBundled(projects)) return;
  const bundle = [process.execPath, join(ROOT, 'scripts', 'bundle.mjs'), ...projects];
  const bundled = await withProgress(
    'Bundling',
    () => command(bundle),
    () => undefined,
  );
  if (bundled.status !== 0) fail(`${bundled.output}\nThe build failed with status ${bundled.status}.`);
}

/** Runs tsc. Returns only its complaints as output, not what it says of each package. */
async function compile(projects, onOutput) {
  const { status, output } = await command([process.execPath, bin('tsc'), '-b', '--verbose', ...projects], {
    onOutput,
  });
  const complaints = output.split('\n').filter((line) => !/^\d\d:\d\d:\d\d |^ {4}\* |^$/.test(line));
  return { status, output: complaints.join('\n') };
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** Arguments of npm: only what programs and their build need. */
function ofPrograms() {
  return ['--include-workspace-root', ...programPackages().map(({ path }) => `--workspace=${path}`)];
}

function programPackages() {
  return workspacePackages().filter(({ path }) => /^(apps|libs)\//.test(path));
}

/** Returns what tells how many packages are on disk, and how many there will be. npm puts each in place as it arrives. */
function installedSoFar(tools) {
  const { packages } = readJson(LOCK);
  const starts = (tools ? workspacePackages() : programPackages()).map(({ path }) => path);
  const wanted = [...packagesBelow(packages, ['', ...(tools ? ['tools'] : []), ...starts])];
  return () => [wanted.filter((path) => existsSync(join(ROOT, path, 'package.json'))).length, wanted.length];
}

/** Returns the paths of all packages that these need. Leaves out optional ones, most of which are for other platforms. */
function packagesBelow(packages, starts) {
  const found = new Set();
  const next = [...starts];
  for (const from of next) {
    // npm lists the development dependencies of our own packages only.
    const { dependencies, devDependencies } = packages[from] ?? {};
    for (const name of Object.keys({ ...dependencies, ...devDependencies })) {
      const path = placeOf(packages, from, name);
      if (path === undefined || found.has(path) || packages[path].link) continue;
      found.add(path);
      next.push(path);
    }
  }
  return found;
}

/** Where Node finds a package that another one imports: in the nearest node_modules above it. */
function placeOf(packages, from, name) {
  for (let place = from; ; place = place.includes('/') ? place.slice(0, place.lastIndexOf('/')) : '') {
    const path = `${place === '' ? '' : `${place}/`}node_modules/${name}`;
    if (packages[path]) return path;
    if (place === '') return undefined;
  }
}

/** Whether node_modules holds what the lock file asks for. Compares content, since a checkout changes the times of files. */
function isInstalled(tools) {
  const installed = join(ROOT, INSTALLED);
  if (!existsSync(installed)) return false;
  const present = readJson(installed).packages;
  const wanted = readJson(LOCK).packages;
  const agrees = (path) => {
    const { version, integrity } = wanted[path] ?? {};
    return present[path]?.version === version && present[path]?.integrity === integrity;
  };
  // npm writes its list last, so what depends on these is there too.
  if (!tools) return Object.keys(present).every(agrees) && programPackages().every((each) => hasDirect(each, present));
  return Object.entries(wanted).every(([path, { optional }]) => {
    // Packages for other platforms are in the lock file but not on disk.
    return path === '' || (!present[path] && optional) || agrees(path);
  });
}

function hasDirect({ path, manifest }, present) {
  const names = Object.keys({ ...manifest.dependencies, ...manifest.devDependencies });
  return names.every((name) => present[`${path}/node_modules/${name}`] ?? present[`node_modules/${name}`]);
}

/**
 * Whether each built program would run from its bundle. It uses the same check as the program does when it starts. That check compares
 * times, which `tsc -b` changes even if it changes nothing else.
 */
async function isBundled(projects) {
  const { currentBundle } = await import('../../libs/service/dist/current-bundle.js');
  return programs(projects).every(({ dir }) => currentBundle(pathToFileURL(join(dir, 'dist/'))));
}

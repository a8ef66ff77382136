import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { npm } from './command.mjs';
import { packagesOf } from './system.mjs';
import { programs, ROOT, readJson } from './workspace.mjs';

const NPM_TIMEOUT_MS = 120_000;
const MODULES = 'node_modules/';

/**
 * Returns what the programs consist of as a CycloneDX document: npm's packages as installed, and what else goes with them. It says the
 * same for the same parts, so it has neither the time nor the random number that npm gives it.
 * @param others the components that are not npm's: `runtimeParts` for an image
 */
export function bill(others = []) {
  const { serialNumber: _number, metadata, ...document } = npmSbom();
  const { timestamp: _time, component, ...rest } = metadata;
  const there = installedPackages();
  const isThere = (ref) => there.has(ref) || ref === component['bom-ref'];
  const dependencies = document.dependencies
    .filter(({ ref }) => isThere(ref))
    .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter(isThere) }));
  const packages = document.components.filter((part) => there.has(part['bom-ref']));
  const components = [...packages, ...others];
  return { ...document, metadata: { ...rest, component: { ...component, name: 'isthmus' } }, components, dependencies };
}

/** npm's list follows the lock file, which has packages of other platforms and of tools too. */
function npmSbom() {
  const workspaces = programs().map(({ path }) => `--workspace=${path}`);
  const what = ['--sbom-format=cyclonedx', '--package-lock-only', '--omit=dev'];
  const [program, ...args] = npm('sbom', ...what, ...workspaces);
  const run = spawnSync(program, args, { cwd: ROOT, encoding: 'utf8', timeout: NPM_TIMEOUT_MS, maxBuffer: 64 << 20 });
  if (run.status !== 0) throw new Error(`npm sbom: ${run.stderr}`);
  return JSON.parse(run.stdout);
}

/** Returns the places of installed packages below the root, by name and version as npm's list has them. */
function installedPackages() {
  const entries = Object.entries(readJson(join(ROOT, MODULES, '.package-lock.json')).packages).filter(([path]) =>
    path.includes(MODULES),
  );
  return new Map(
    entries.flatMap(([path, { version, link, resolved }]) => {
      const name = path.slice(path.lastIndexOf(MODULES) + MODULES.length);
      if (!link) return [[`${name}@${version}`, path]];
      // Of the workspace, tests and tools are no part of anything.
      const manifest = readJson(join(ROOT, resolved, 'package.json'));
      return manifest.exports || manifest.bin ? [[`${name}@${manifest.version}`, resolved]] : [];
    }),
  );
}

/** Returns Node, and the Debian packages of the libraries that it loads, as components. @param from the root of their system */
export function runtimeParts(libraries, from) {
  const node = { name: 'node', version: process.versions.node, purl: `pkg:generic/node@${process.versions.node}` };
  const packages = packagesOf(libraries, from).map(({ name, version, architecture }) => {
    return { name, version, purl: `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${architecture}` };
  });
  const component = (type) => (part) => ({ 'bom-ref': part.purl, type, ...part });
  return [component('application')(node), ...packages.map(component('library'))];
}

/** Returns the licence of every part: its name, and its text as far as its package has one. The parts that are not npm's are below `from`. */
export function licences({ components }, from = '/') {
  const places = installedPackages();
  const parts = components.map((part) => {
    const named = (part.licenses ?? []).map(({ license, expression }) => expression ?? license.id ?? license.name);
    const texts = textsOf(part, places, from).map((file) => readFileSync(file, 'utf8').trim());
    return [`${part.name} ${part.version} ${named.join(' ')}`.trim(), ...texts].join('\n\n');
  });
  return `${parts.join(`\n\n${'='.repeat(80)}\n\n`)}\n`;
}

function textsOf({ name, purl, 'bom-ref': ref }, places, from) {
  if (!purl.startsWith('pkg:npm/')) {
    const node = join(dirname(dirname(process.execPath)), 'LICENSE');
    const file = join(from, name === 'node' ? node : `/usr/share/doc/${name}/copyright`);
    return existsSync(file) ? [file] : [];
  }
  const directory = join(ROOT, places.get(ref));
  const files = readdirSync(directory).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  return files.map((file) => join(directory, file));
}

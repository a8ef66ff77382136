import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { npm } from './command.mjs';
import { INSTALLED, programs, readJson } from './workspace.mjs';

const NPM_TIMEOUT_MS = 120_000;
const MODULES = 'node_modules/';

/**
 * Returns what the image consists of as a CycloneDX document: npm's packages as installed, Node, and the distribution's libraries. It
 * says the same for the same parts, so it has neither the time nor the random number that npm gives it.
 */
export function bill(root, libraries) {
  const { serialNumber: _number, metadata, ...document } = npmSbom(root);
  const { timestamp: _time, component, ...rest } = metadata;
  const there = installedPackages(root);
  const isThere = (ref) => there.has(ref) || ref === component['bom-ref'];
  const dependencies = document.dependencies
    .filter(({ ref }) => isThere(ref))
    .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter(isThere) }));
  const packages = document.components.filter((part) => there.has(part['bom-ref']));
  const components = [...packages, node(), ...packagesOf(libraries)];
  return { ...document, metadata: { ...rest, component: { ...component, name: 'isthmus' } }, components, dependencies };
}

/** npm's list follows the lock file, which has packages of other platforms and of tools too. */
function npmSbom(root) {
  const workspaces = programs([], root).map(({ path }) => `--workspace=${path}`);
  const what = ['--sbom-format=cyclonedx', '--package-lock-only', '--omit=dev'];
  const [program, ...args] = npm('sbom', ...what, ...workspaces);
  const run = spawnSync(program, args, { cwd: root, encoding: 'utf8', timeout: NPM_TIMEOUT_MS, maxBuffer: 64 << 20 });
  if (run.status !== 0) throw new Error(`npm sbom: ${run.stderr}`);
  return JSON.parse(run.stdout);
}

/** Returns the places of installed packages below the root, by name and version as npm's list has them. */
function installedPackages(root) {
  const entries = Object.entries(readJson(join(root, INSTALLED)).packages).filter(([path]) => path.includes(MODULES));
  return new Map(
    entries.map(([path, { version, link, resolved }]) => {
      const name = path.slice(path.lastIndexOf(MODULES) + MODULES.length);
      const place = link ? resolved : path;
      return [`${name}@${version ?? readJson(join(root, place, 'package.json')).version}`, place];
    }),
  );
}

function node() {
  const version = process.versions.node;
  const purl = `pkg:generic/node@${version}`;
  return { 'bom-ref': purl, type: 'application', name: 'node', version, purl };
}

/** Returns the Debian packages that files belong to; on other systems, none. */
function packagesOf(files) {
  // Debian's list has some files below /lib and others below /usr/lib, which are one directory.
  const owner = (file) => ask('--search', file).split(':')[0] || ask('--search', realpathSync(file)).split(':')[0];
  return [...new Set(files.map(owner))].filter(Boolean).map((name) => {
    const [version, arch] = ask('--show', `--showformat=\${Version} \${Architecture}`, name).split(' ');
    const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${arch}`;
    return { 'bom-ref': purl, type: 'library', name, version, purl };
  });
}

function ask(...args) {
  return spawnSync('dpkg-query', args, { encoding: 'utf8' }).stdout ?? '';
}

/** Returns the licence of every part: its name, and its text as far as its package has one. */
export function licences({ components }, root) {
  const places = installedPackages(root);
  const parts = components.map((part) => {
    const named = (part.licenses ?? []).map(({ license, expression }) => expression ?? license.id ?? license.name);
    const texts = textsOf(part, places, root).map((file) => readFileSync(file, 'utf8').trim());
    return [`${part.name} ${part.version} ${named.join(' ')}`.trim(), ...texts].join('\n\n');
  });
  return `${parts.join(`\n\n${'='.repeat(80)}\n\n`)}\n`;
}

function textsOf({ name, purl, 'bom-ref': ref }, places, root) {
  if (purl.startsWith('pkg:deb/')) return [`/usr/share/doc/${name}/copyright`].filter(existsSync);
  if (name === 'node') return [join(dirname(dirname(process.execPath)), 'LICENSE')].filter(existsSync);
  const directory = join(root, places.get(ref));
  const files = readdirSync(directory).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  return files.map((file) => join(directory, file));
}

import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { filesBelow, ROOT, readJson } from './workspace.mjs';

/** A version without a `v`, which is how ours are written: upstream's images have one. */
const NUMBER = String.raw`\d+\.\d+\.\d+(?:-[0-9a-z.-]+)?`;
const IMAGES = 'isthmus|isthmus-hypershift|frontend-gw|backend-hub|proxy-agent|proxy-server';
const IMAGE = new RegExp(String.raw`(?<=(?:^|[\s=/"'\`])(?:${IMAGES})[: ])${NUMBER}\b`, 'gm');
/** An image and its version on lines of their own, as k0s and Kamaji have them. */
const IMAGE_AND_VERSION = new RegExp(String.raw`(?<=image: \S*/(?:${IMAGES})\n\s+version: )${NUMBER}$`, 'gm');
const CONSTANT = new RegExp(`(?<=VERSION = ')${NUMBER}(?=')`);
const CHART = 'k8s/chart/Chart.yaml';
const OF_CHART = new RegExp(`(?<=^(?:version|appVersion): )${NUMBER}$`, 'gm');

/** Returns the version of everything: that of the root's package.json. */
export function versionOf(root = ROOT) {
  return readJson(join(root, 'package.json')).version;
}

/** Returns every other file that names the version, by its path, with the text that it must have. */
export function stamped(root = ROOT) {
  const version = versionOf(root);
  const inText = (patterns) => (text) => patterns.reduce((done, pattern) => done.replace(pattern, version), text);
  const lock = readJson(join(root, 'package-lock.json'));
  const members = Object.keys(lock.packages).filter((path) => path !== '' && !path.includes('node_modules/'));
  const pages = ['k8s', 'docs'].flatMap((directory) =>
    filesBelow(join(root, directory), (path) => /\.(ya?ml|md)$|Containerfile$/.test(path)),
  );
  const entries = [
    ['package-lock.json', (text) => json(stampedLock(JSON.parse(text), members, version))],
    ...members.map((path) => [`${path}/package.json`, (text) => json(stampedManifest(JSON.parse(text), version))]),
    ['libs/service/src/program.ts', inText([CONSTANT])],
    ...pages.map((path) => [relative(root, path), inText([IMAGE, IMAGE_AND_VERSION])]),
    [CHART, inText([OF_CHART])],
  ];
  return new Map(entries.map(([path, change]) => [path, change(readFileSync(join(root, path), 'utf8'))]));
}

function json(value) {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

function stampedLock(lock, members, version) {
  const of = (path) => stampedManifest(lock.packages[path], version);
  const packages = Object.fromEntries(['', ...members].map((path) => [path, of(path)]));
  return { ...lock, version, packages: { ...lock.packages, ...packages } };
}

/** Packages of the workspace depend on each other's exact version. */
function stampedManifest(manifest, version) {
  const stamped = { ...manifest, version };
  for (const kind of ['dependencies', 'devDependencies'])
    for (const name of Object.keys(manifest[kind] ?? {}))
      if (name.startsWith('@isthmus/')) stamped[kind] = { ...stamped[kind], [name]: version };
  return stamped;
}

// What a version is made of beside its packages and images, and what must be so before it is one.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { command } from './command.mjs';
import { ROOT } from './workspace.mjs';

/** `## 1.2.3 - 2026-01-31`, or `unreleased` for the date. */
const HEADING = /^## (\S+) - (\d{4}-\d{2}-\d{2}|unreleased)$/m;

/**
 * Returns what CHANGELOG.md says of a version: its date, or undefined as long as it is unreleased, and the text. Throws if it says nothing.
 */
export function changesOf(version, changelog) {
  const section = changelog.split(/^(?=## )/m).find((each) => HEADING.exec(each)?.[1] === version);
  const wanted = `CHANGELOG.md has no section for ${version}, the version in package.json: add one that begins with`;
  if (!section) throw new Error(`${wanted} "## ${version} - unreleased"`);
  const [heading, , date] = HEADING.exec(section);
  const text = section.slice(heading.length).trim();
  if (text === '')
    throw new Error(`CHANGELOG.md has nothing in its section for ${version}: say what changes for who runs it`);
  return { date: date === 'unreleased' ? undefined : date, text };
}

async function git(root, ...args) {
  const { status, output } = await command(['git', ...args], { cwd: root });
  return status === 0 ? output.trimEnd() : undefined;
}

/** Returns a repository's address as npm writes it, from what git has as a remote: without credentials; undefined for a directory. */
export function addressOf(remote) {
  const [, host, path] =
    /^(?:https|ssh|git):\/\/(?:[^@/]*@)?([^/:]+)(?::\d+)?\/(.+?)\/?$/.exec(remote) ??
    /^(?:[^@/]+@)?([^/:]+):(?!\/\/)(.+)$/.exec(remote) ??
    [];
  return host && `git+https://${host}/${path.replace(/(\.git)?$/, '.git')}`;
}

/** Returns the address of the repository: that of the remote `origin`. */
export async function originAddress() {
  return addressOf((await git(ROOT, 'remote', 'get-url', 'origin')) ?? '');
}

/** Returns what keeps the work tree from being a version, one line each. */
export async function unlike(version, root = ROOT) {
  const [changed, head, tagged] = await Promise.all([
    git(root, 'status', '--porcelain'),
    git(root, 'rev-parse', 'HEAD'),
    git(root, 'rev-parse', '--verify', '--quiet', `v${version}^{commit}`),
  ]);
  return [
    ...(head === undefined ? ['this is no git repository'] : []),
    ...(changed ? [`the work tree has changes: commit them\n${changed}`] : []),
    ...(tagged === undefined ? [`there is no tag v${version}: git tag --sign v${version}`] : []),
    ...(tagged !== undefined && tagged !== head ? [`v${version} is another commit: git checkout v${version}`] : []),
  ];
}

/**
 * Returns the manifest by which krew installs `kubectl isthmus`: the npm package of all programs, from the release of the repository.
 * @param tarball the package's path
 * @param repository the address of the repository
 */
export function krewManifest({ tarball, version, repository }) {
  const words = {
    VERSION: version,
    REPOSITORY: repository,
    PACKAGE: basename(tarball),
    CHECKSUM: createHash('sha256').update(readFileSync(tarball)).digest('hex'),
  };
  const manifest = readFileSync(new URL('krew.yaml', import.meta.url), 'utf8');
  return manifest.replaceAll(new RegExp(Object.keys(words).join('|'), 'g'), (word) => words[word]);
}

import { command } from './command.mjs';
import { ROOT } from './workspace.mjs';

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

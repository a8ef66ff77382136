import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { BUILT, VERSION } from './settings.ts';

/** The programs and files that a run needs, by the Debian package that has them. */
const TOOLS: Readonly<Record<string, string>> = {
  buildah: 'buildah',
  containerd: 'containerd',
  conntrack: 'conntrack',
  etcd: 'etcd-server',
  ip: 'iproute2',
  ipset: 'ipset',
  iptables: 'iptables',
  openssl: 'openssl',
  runc: 'runc',
  script: 'bsdutils',
  setpriv: 'util-linux',
  '/usr/lib/cni/ptp': 'containernetworking-plugins',
};

/** And those that only a build needs. Ubuntu does not have the keys of Debian's packages by itself. */
const BUILD_TOOLS: Readonly<Record<string, string>> = {
  go: 'golang-go',
  mmdebstrap: 'mmdebstrap',
  '/usr/share/keyrings/debian-archive-keyring.gpg': 'debian-archive-keyring',
};

/** Returns why this machine cannot run the cluster; undefined if it can. */
export function unfit(building: boolean): string | undefined {
  const reason = unable(building);
  if (reason) return reason;
  const packages = missingPackages(building).join(' ');
  return packages === '' ? undefined : `it needs what is not installed: apt-get install ${packages}`;
}

/** Returns what this machine lacks that no package brings; undefined if nothing. */
export function unable(building: boolean): string | undefined {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'it needs root on Linux';
  if (!['memory', 'cgroup.controllers'].some((name) => existsSync(`/sys/fs/cgroup/${name}`)))
    return 'it needs control groups (/sys/fs/cgroup)';
  if (spawnSync('unshare', ['--mount', '--net', '--pid', '--uts', '--ipc', '--fork', 'true']).status !== 0)
    return 'it needs namespaces, and this machine does not permit them (CAP_SYS_ADMIN)';
  if (!building && !existsSync(BUILT))
    return `Kubernetes ${VERSION} is not built here: npm run cluster -- --build (20 min)`;
  return undefined;
}

/** Returns Debian's packages of the programs that are missing. */
export function missingPackages(building: boolean): string[] {
  const tools = { ...TOOLS, ...(building ? BUILD_TOOLS : {}) };
  const isThere = (name: string) =>
    name.startsWith('/') ? existsSync(name) : spawnSync('sh', ['-c', `command -v ${name}`]).status === 0;
  const absent = Object.entries(tools).filter(([name]) => !isThere(name));
  return absent.map(([, name]) => name);
}

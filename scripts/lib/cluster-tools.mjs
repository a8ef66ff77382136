import { command, installed } from './command.mjs';

const INSTALL_MS = 10 * 60_000;
/** Debian's packages of what the cluster's node consists of, and of what builds it. */
const PACKAGES = [
  'buildah',
  'conntrack',
  'containerd',
  'containernetworking-plugins',
  'etcd-server',
  'ipset',
  'iptables',
  'mmdebstrap',
  'openssl',
  'runc',
];

/**
 * Installs the programs that the cluster needs where no permission is needed: as root on a system with apt-get. What is then missing, the
 * cluster says.
 */
export async function installClusterTools() {
  if (
    ['buildah', 'conntrack', 'containerd', 'etcd', 'ipset', 'iptables', 'mmdebstrap', 'openssl', 'runc'].every(
      installed,
    )
  )
    return;
  if (process.getuid?.() !== 0 || !installed('apt-get')) return;
  process.stderr.write(`Installing ${PACKAGES.join(', ')} (apt-get) ...\n`);
  const options = { timeout: INSTALL_MS, env: { DEBIAN_FRONTEND: 'noninteractive' } };
  await command(['apt-get', 'update'], options);
  // The packages start services where systemd is, and none is wanted: the node starts its own.
  await command(['apt-get', 'install', '-y', '--no-install-recommends', ...PACKAGES], options);
}

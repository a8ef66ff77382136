import { command, installed } from './command.mjs';

const INSTALL_MS = 10 * 60_000;
/** Options with which no cluster may come of it: help, and the question whether this machine can run one. */
const INSTALL_NOTHING = ['--help', '--if-possible'];

/**
 * Installs the packages of programs that the cluster needs and that are missing, where nothing else is: as root on a system with apt-get that
 * can run the cluster. What is then missing, the cluster says.
 * @param args the options of `npm run cluster`
 * @param machine `unable` and `missingPackages` of test/src/cluster/machine.ts
 */
export async function installClusterTools(args, { unable, missingPackages }, run = command) {
  if (INSTALL_NOTHING.some((option) => args.includes(option)) || !installed('apt-get')) return;
  const building = args.includes('--build');
  if (unable(building)) return;
  const packages = missingPackages(building);
  if (packages.length === 0) return;
  process.stderr.write(`Installing ${packages.join(', ')} (apt-get) ...\n`);
  const options = { timeout: INSTALL_MS, env: { DEBIAN_FRONTEND: 'noninteractive' } };
  await run(['apt-get', 'update'], options);
  // The packages start services where systemd is, and none is wanted: the node starts its own. Nothing of the machine's makes room for them.
  await run(['apt-get', 'install', '-y', '--no-install-recommends', '--no-remove', ...packages], options);
}

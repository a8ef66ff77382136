import { command, installed } from './command.mjs';

const INSTALL_MS = 10 * 60_000;

/**
 * Installs the packages of programs that the cluster needs and that are missing, where nothing else is: as root on a system with apt-get that
 * can run the cluster. What is then missing, the cluster says.
 * @param options those of `npm run cluster`; with --if-possible, no cluster may come of it, and nothing is installed
 * @param machine `unable` and `missingPackages` of test/src/cluster/machine.ts
 */
export async function installClusterTools(options, { unable, missingPackages }, run = command) {
  if (options['if-possible'] || !installed('apt-get')) return;
  const building = options.build;
  if (unable(building)) return;
  const packages = missingPackages(building);
  if (packages.length === 0) return;
  process.stderr.write(`Installing ${packages.join(', ')} (apt-get) ...\n`);
  const settings = { timeout: INSTALL_MS, env: { DEBIAN_FRONTEND: 'noninteractive' } };
  await run(['apt-get', 'update'], settings);
  // The packages start services where systemd is, and none is wanted: the node starts its own. Nothing of the machine's makes room for them.
  await run(['apt-get', 'install', '-y', '--no-install-recommends', '--no-remove', ...packages], settings);
}

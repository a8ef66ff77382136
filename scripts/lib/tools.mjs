import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { command, installed } from './command.mjs';
import { ROOT } from './workspace.mjs';

const UPDATE_MS = 5 * 60_000;
const INSTALL_MS = 10 * 60_000;
const APT = { timeout: INSTALL_MS, env: { DEBIAN_FRONTEND: 'noninteractive' } };
/** A machine that has just started may be installing its own updates: apt-get waits that many seconds for its locks. */
const LOCKED_S = 300;
/** How many of the last lines of a failed apt-get are shown. */
const SAID_LINES = 8;
/** Where Prometheus is unpacked, and where test/src/monitoring/promtool.ts looks: to install it would start it. */
const PROMETHEUS = join(ROOT, 'node_modules', '.cache', 'isthmus-prometheus');

/** Tools that npm does not have: their names on the PATH, Debian's package, and what is skipped without them. */
const TOOLS = {
  redis: { names: ['redis-server'], package: 'redis-server', skipped: 'the tests against a real Redis' },
  chromium: {
    names: ['chromium', 'chromium-browser', 'google-chrome'],
    package: 'chromium',
    skipped: 'the tests of the console in a browser',
  },
  prometheus: {
    names: ['promtool'],
    unpacked: join(PROMETHEUS, 'usr', 'bin', 'promtool'),
    package: 'prometheus',
    skipped: 'the tests of alert rules, and of the dashboard against real samples',
  },
};

/**
 * Makes tools available where no permission is needed: as root on a system with apt-get. Resolves with a line for each that is still
 * missing, which says what is skipped and what to install.
 * @param npmDone resolves once npm is done with node_modules
 */
export async function ensureTools(names, npmDone) {
  const missing = () => names.map((name) => TOOLS[name]).filter((tool) => !isThere(tool));
  if (missing().length > 0 && canInstall()) {
    await aptUpdate(missing().map((tool) => tool.package));
    for (const tool of missing().filter((tool) => !tool.unpacked)) await aptInstall(tool.package);
  }
  await npmDone;
  if (canInstall()) for (const tool of missing().filter((tool) => tool.unpacked)) await unpack(tool);
  return missing().map(
    (tool) => `${tool.package} is not installed, so ${tool.skipped} are skipped: apt-get install ${tool.package}`,
  );
}

/** Installs packages by apt-get, if that is there. */
export async function installPackages(packages) {
  if (packages.length === 0 || !installed('apt-get')) return;
  await aptUpdate(packages);
  await aptInstall(...packages);
}

function canInstall() {
  return process.getuid?.() === 0 && installed('apt-get');
}

function isThere({ names, unpacked }) {
  return names.some(installed) || (unpacked !== undefined && existsSync(unpacked));
}

function aptUpdate(packages) {
  process.stderr.write(`Installing ${packages.join(', ')} (apt-get) ...\n`);
  return apt(['update'], { ...APT, timeout: UPDATE_MS });
}

function aptInstall(...packages) {
  return apt(['install', '-y', '--no-install-recommends', '--no-remove', ...packages], APT);
}

/** Runs apt-get, and says what it said if it fails. */
async function apt([verb, ...rest], options) {
  const waits = ['-o', `DPkg::Lock::Timeout=${LOCKED_S}`];
  const { status, output } = await command(['apt-get', verb, ...waits, ...rest], options);
  if (status === 0) return;
  const said = output.trim().split('\n').slice(-SAID_LINES);
  process.stderr.write(`apt-get ${[verb, ...rest].join(' ')} ended with ${status}:\n  ${said.join('\n  ')}\n`);
}

async function unpack(tool) {
  mkdirSync(PROMETHEUS, { recursive: true });
  await apt(['download', tool.package], { ...APT, cwd: PROMETHEUS });
  const archive = readdirSync(PROMETHEUS).find((name) => name.endsWith('.deb'));
  if (archive) await command(['dpkg-deb', '--extract', join(PROMETHEUS, archive), PROMETHEUS]);
}

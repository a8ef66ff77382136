import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { command, installed } from './command.mjs';
import { ROOT } from './workspace.mjs';

const MINUTE = 60_000;
/** Where the package is unpacked, and where test/src/monitoring/promtool.ts looks. */
const UNPACKED = join(ROOT, 'node_modules', '.cache', 'isthmus-prometheus');

/**
 * Makes promtool available where no permission is needed: as root on a system with apt-get. It unpacks the package instead of installing
 * it, because an installation would start a Prometheus. Resolves with one line about what to install and which tests are skipped, or with
 * undefined if promtool is there.
 */
export async function ensurePromtool() {
  if (isThere()) return undefined;
  if (process.getuid?.() === 0 && installed('apt-get') && installed('dpkg-deb')) {
    process.stderr.write('Fetching Prometheus and promtool (apt-get) ...\n');
    mkdirSync(UNPACKED, { recursive: true });
    await command(['apt-get', 'update'], { timeout: 5 * MINUTE });
    await command(['apt-get', 'download', 'prometheus'], { timeout: 5 * MINUTE, cwd: UNPACKED });
    const archive = readdirSync(UNPACKED).find((name) => name.endsWith('.deb'));
    if (archive) await command(['dpkg-deb', '--extract', join(UNPACKED, archive), UNPACKED]);
    if (isThere()) return undefined;
  }
  return (
    'Prometheus is not installed, so the tests of alert rules, and of the dashboard against real samples, are skipped: ' +
    'apt-get install prometheus (Debian, Ubuntu), dnf install prometheus (Fedora), brew install prometheus (macOS).'
  );
}

function isThere() {
  return installed('promtool') || existsSync(join(UNPACKED, 'usr', 'bin', 'promtool'));
}

import { command, installed } from './command.mjs';

const MINUTE = 60_000;

/** The names that the tests look for (test/src/console/browser.ts). */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/**
 * Makes Chromium available where no permission is needed: as root on a system with apt-get. Resolves with one line about what to install
 * and which tests are skipped, or with undefined if a browser is there.
 */
export async function ensureChromium() {
  if (NAMES.some(installed)) return undefined;
  if (process.getuid?.() === 0 && installed('apt-get')) {
    process.stderr.write('Installing chromium (apt-get) ...\n');
    const options = { timeout: 10 * MINUTE, env: { DEBIAN_FRONTEND: 'noninteractive' } };
    await command(['apt-get', 'update'], options);
    await command(['apt-get', 'install', '-y', '--no-install-recommends', 'chromium'], options);
    if (NAMES.some(installed)) return undefined;
  }
  return (
    'chromium is not installed, so the tests of the console in a browser are skipped. ' +
    'Install it with: apt-get install chromium (Debian), dnf install chromium (Fedora).'
  );
}

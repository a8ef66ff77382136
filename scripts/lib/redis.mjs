import { command, installed } from './command.mjs';

const MINUTE = 60_000;

/**
 * Makes redis-server available where no permission is needed: as root on a system with apt-get. Resolves with one line about what to
 * install and which tests are skipped, or with undefined if Redis is there.
 */
export async function ensureRedis() {
  if (installed('redis-server')) return undefined;
  if (process.getuid?.() === 0 && installed('apt-get')) {
    process.stderr.write('Installing redis-server (apt-get) ...\n');
    const options = { timeout: 5 * MINUTE, env: { DEBIAN_FRONTEND: 'noninteractive' } };
    await command(['apt-get', 'update'], options);
    await command(['apt-get', 'install', '-y', '--no-install-recommends', 'redis-server'], options);
    if (installed('redis-server')) return undefined;
  }
  return (
    'redis-server is not installed, so the tests against a real Redis (registry, split tiers) are skipped. ' +
    'Install it with: apt-get install redis-server (Debian, Ubuntu), dnf install redis (Fedora), brew install redis (macOS).'
  );
}

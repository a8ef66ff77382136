import { withBundles } from './bundles.mjs';
import { bin, command } from './command.mjs';
import { ONE_FAILED, ONE_PASSED, readClosingLines, sum } from './counts.mjs';

/** The targets, of nx.json and of the packages, that must pass before a change is merged. Those that take longest go first. */
const TARGETS = [
  ...['test-plane', 'test-tenants', 'test-compat', 'test-console', 'test-repository', 'test-hostile', 'test-edges'],
  ...['test', 'types', 'lint', 'boundaries', 'generated'],
];
const TIMEOUT_MS = 45 * 60_000;
/** What runs side by side: tests that wait leave the processors to others. */
const PARALLEL = 3;

/**
 * Runs every target whose result may differ from its last run: Nx knows what a change can affect. Prints failures as they happen, and
 * resolves with the sum of the counts. A check that prints no count counts as one.
 */
export async function gate({ fresh = process.env.CI === 'true' } = {}) {
  return withBundles(async () => {
    const options = [`--parallel=${PARALLEL}`, '--outputStyle=stream-without-prefixes', '--nxBail=false'];
    const argv = [bin('nx'), 'run-many', '-t', ...TARGETS, ...options, ...(fresh ? ['--skipNxCache'] : [])];
    const { status, output } = await command(argv, { show: true, timeout: TIMEOUT_MS });
    const counts = sum(readClosingLines(output));
    // A target that ended before it printed its count did not count itself.
    if (counts.failed > 0) return counts;
    return sum([counts, status === 0 ? ONE_PASSED : ONE_FAILED]);
  });
}

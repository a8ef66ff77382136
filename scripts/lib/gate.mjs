import { bin, command } from './command.mjs';
import { ONE_FAILED, ONE_PASSED, readClosingLines, sum } from './counts.mjs';
import { sharingTurns } from './test-turns.mjs';

/** The targets, of nx.json and of the packages, that must pass before a change is merged. */
const TARGETS = [
  ...['build', 'lint', 'boundaries', 'generated', 'test'],
  ...['test-compat', 'test-console', 'test-edges', 'test-hostile', 'test-plane', 'test-tenants', 'test-repository'],
];
/** More than there are. */
const TASKS = 100;
const TIMEOUT_MS = 45 * 60_000;

/**
 * Builds, and runs every target whose result may differ from its last run: Nx knows what a change can affect. Prints failures as they
 * happen, and resolves with the sum of the counts. A check counts as one.
 */
export async function gate({ fresh = process.env.CI === 'true' } = {}) {
  const options = [
    // All at once: their processes take turns.
    `--parallel=${TASKS}`,
    '--outputStyle=stream-without-prefixes',
    '--nxBail=false',
    ...(fresh ? ['--skipNxCache'] : []),
  ];
  const { status, output } = await sharingTurns((env) =>
    command([bin('nx'), 'run-many', '-t', ...TARGETS, ...options], { show: true, timeout: TIMEOUT_MS, env }),
  );
  const counts = sum(readClosingLines(output));
  // The build does not count itself, nor does a target that ended before it printed its count.
  if (counts.failed > 0) return counts;
  return sum([counts, status === 0 ? ONE_PASSED : ONE_FAILED]);
}

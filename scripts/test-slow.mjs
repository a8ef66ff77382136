// Runs at full size the tests that the gate leaves out or runs small, for lack of time.
import { command } from './lib/command.mjs';
import { ensureInstalled } from './lib/ready.mjs';

/** Every file that asks for ISTHMUS_SLOW_TESTS, but for those of compat: with all pairs and paces they take ten minutes. */
const MATCH =
  '^test/src/(console/people|containerfile|demo|k8s-(chart|schema)[^/]*|incidents/[^/]*|release/[^/]*|plane/(roll|rebalance|frozen-agent|lost-peers)|hostile/rogue-attaches|tenants/(memory|strangers)|edges/(leaks|transfers))\\.|/grpc/agent-tunnels\\.';
const TIMEOUT_MS = 34 * 60_000;

await ensureInstalled();
const files = [process.execPath, 'scripts/test-files.mjs', `--match=${MATCH}`, 'libs/transport', 'test'];
const { status } = await command(files, { show: true, timeout: TIMEOUT_MS, env: { ISTHMUS_SLOW_TESTS: '1' } });
process.exitCode = status;

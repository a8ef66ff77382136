import { type DemoOptions, parseOptions, runDemo, USAGE } from './demo.ts';
import { Screen } from './guide.ts';

/** The first Ctrl-C drains; the second does not wait. */
function interrupts() {
  const stop = new AbortController();
  const abandon = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => (stop.signal.aborted ? abandon.abort() : stop.abort()));
  }
  return { stop: stop.signal, abandon: abandon.signal };
}

function readArguments(): DemoOptions {
  try {
    const options = parseOptions(process.argv.slice(2));
    if (options) return options;
    process.stdout.write(USAGE);
    process.exit(0);
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    process.exit(1);
  }
}

const options = readArguments();
process.exit(await runDemo(options, Screen.of(process.stdout, process.env), interrupts()));

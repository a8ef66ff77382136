import { bool, level, moduleSpec, oneOf, severity, string, topic, traceLocation, uint, type Values } from '../flag.ts';

const NO_FILES = 'logs go to standard error';
const NO_HEADERS = '--log-format sets the format of lines';
const NO_MODULES = 'verbosity cannot be set per source file';

export const logging = topic('Logging', {
  'log-format': oneOf(['text', 'json'])('text', 'Format of log lines: text or json.', { own: true }),
  v: level(
    4,
    'How much to log: 0 only what needs attention, 2 also each dial and session, 5 also their steps, 8 everything.',
    {
      short: 'v',
    },
  ),
  logtostderr: bool(true, 'Log to standard error.'),
  vmodule: moduleSpec('', 'Verbosity by source file.', { inert: NO_MODULES }),
  'log-backtrace-at': traceLocation('', 'Log a stack trace at this place in the source.', { inert: NO_MODULES }),
  alsologtostderr: bool(false, 'Log to standard error as well as to files.', { inert: NO_FILES }),
  alsologtostderrthreshold: severity(0, 'Lowest severity for --alsologtostderr.', { inert: NO_FILES }),
  stderrthreshold: severity(2, 'Lowest severity that goes to standard error as well as to files.', { inert: NO_FILES }),
  'legacy-stderr-threshold-behavior': bool(true, 'Whether --logtostderr overrides --stderrthreshold.', {
    inert: NO_FILES,
  }),
  'one-output': bool(false, 'Log each line only to the file of its own severity.', { inert: NO_FILES }),
  'log-dir': string('', 'Directory of log files.', { inert: NO_FILES }),
  'log-file': string('', 'Path of a log file.', { inert: NO_FILES }),
  'log-file-max-size': uint(1800, 'Largest size of a log file, in megabytes.', { inert: NO_FILES }),
  'add-dir-header': bool(false, 'Show the source directory in each line.', { inert: NO_HEADERS }),
  'skip-headers': bool(false, 'Log without headers.', { inert: NO_HEADERS }),
  'skip-log-headers': bool(false, 'Open log files without headers.', { inert: NO_FILES }),
});

export function checkLogging(flags: Values<typeof logging>, warn: (message: string) => void): void {
  if (!flags.logtostderr) warn('--logtostderr=false has no effect here: logs go to standard error');
}

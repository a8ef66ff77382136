import { bool, level, moduleSpec, oneOf, severity, string, topic, traceLocation, uint, type Values } from '../flag.ts';

const NO_FILES = 'logs go to standard error';
const NO_HEADERS = 'the form of a line is chosen by --log-format';
const NO_MODULES = 'verbosity is not set by source file';

export const logging = topic('Logging', {
  'log-format': oneOf(['text', 'json'])('text', 'How a line of log looks: text or json.', { own: true }),
  v: level(
    4,
    'How much is logged: 0 what needs a look, 2 each dial and session too, 5 each step of them, 8 everything.',
    {
      short: 'v',
    },
  ),
  logtostderr: bool(true, 'Log to standard error.'),
  vmodule: moduleSpec('', 'Verbosity by source file.', { inert: NO_MODULES }),
  'log-backtrace-at': traceLocation('', 'Log a stack trace at this place in the source.', { inert: NO_MODULES }),
  alsologtostderr: bool(false, 'Log to standard error beside files.', { inert: NO_FILES }),
  alsologtostderrthreshold: severity(0, 'Least severity for --alsologtostderr.', { inert: NO_FILES }),
  stderrthreshold: severity(2, 'Least severity for standard error beside files.', { inert: NO_FILES }),
  'legacy-stderr-threshold-behavior': bool(true, 'Whether --logtostderr overrides --stderrthreshold.', {
    inert: NO_FILES,
  }),
  'one-output': bool(false, "Log to the file of a line's own severity alone.", { inert: NO_FILES }),
  'log-dir': string('', 'Directory of log files.', { inert: NO_FILES }),
  'log-file': string('', 'Path of a log file.', { inert: NO_FILES }),
  'log-file-max-size': uint(1800, 'Megabytes a log file may grow to.', { inert: NO_FILES }),
  'add-dir-header': bool(false, 'Name the source directory in a line.', { inert: NO_HEADERS }),
  'skip-headers': bool(false, 'Log without headers.', { inert: NO_HEADERS }),
  'skip-log-headers': bool(false, 'Open log files without headers.', { inert: NO_FILES }),
});

export function checkLogging(flags: Values<typeof logging>, warn: (message: string) => void): void {
  if (!flags.logtostderr) warn('--logtostderr=false changes nothing here: logs go to standard error');
}

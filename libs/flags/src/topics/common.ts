import { poolBytes, SharedBudget } from '@isthmus/runtime';
import type { ResumeOptions } from '@isthmus/tunnel';
import { FLAGS } from '../defaults.ts';
import { checkAppendable, readFlagFile } from '../files.ts';
import {
  bool,
  duration,
  FlagError,
  int,
  level,
  moduleSpec,
  oneOf,
  ownTopic,
  severity,
  string,
  topic,
  traceLocation,
  uint,
  type Values,
} from '../flag.ts';

const NO_FILES = 'logs go to standard error';
const NO_HEADERS = '--log-format sets the format of lines';
const NO_MODULES = 'verbosity cannot be set per source file';

export const logging = topic('Logging', {
  'log-format': oneOf(['text', 'json'])('text', 'Format of log lines: text or json.', { own: true }),
  v: level(
    4,
    'How much to log: 0 only what needs attention, 2 also sessions and slow dials, 5 also each dial and tunnel, 8 everything.',
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

export const audit = ownTopic('Audit', {
  'audit-log': string(
    '',
    'Write audit records, one line of JSON each, to this file, reopened on SIGHUP, or to standard output with -. Empty for none.',
  ),
});

export function checkAudit(flags: Values<typeof audit>): void {
  const path = flags['audit-log'];
  if (path !== '' && path !== '-') checkAppendable('audit-log', path);
}

export const debug = topic('Debugging', {
  'enable-profiling': bool(false, 'Serve CPU profiles and heap snapshots at /debug/pprof on the admin port.'),
  'enable-contention-profiling': bool(false, 'Profile waiting for locks. Needs --enable-profiling.', {
    inert: 'there are no locks to wait for',
  }),
});

export function checkDebug(flags: Values<typeof debug>): void {
  if (flags['enable-contention-profiling'] && !flags['enable-profiling']) {
    throw new FlagError('enable-contention-profiling', 'needs --enable-profiling');
  }
}

export const about = ownTopic('Help', {
  help: bool(false, 'Show this help.', { short: 'h' }),
  version: bool(false, 'Show the version.'),
});

/** The standard OTEL_* variables set where traces go. */
export const tracing = ownTopic('Traces', {
  'trace-slow': duration(
    1000,
    'Log each dial that takes longer than this. Export a span of each that does or fails, sampled or not. 0 for neither.',
  ),
});

const MIB = 1024 * 1024;

export const resume = ownTopic('Behaviour', {
  'resume-timeout': duration(
    120_000,
    'How long a tunnel that lost its way to the agent waits for another. 0 turns this off. See docs/RESUME.md.',
  ),
  'resume-memory': int(
    64,
    'MiB that all tunnels may keep until the other end has them, beyond 256 KiB each; at most a quarter of what a memory limit leaves beyond 32 MiB. Above it tunnels are slower.',
  ),
});

export function checkResume(flags: Values<typeof resume>): void {
  const memory = flags['resume-memory'];
  if (memory < 0 || memory > 65_536) throw new FlagError('resume-memory', `bad size ${memory}: want 0 to 65536 MiB`);
}

/** @returns undefined if tunnels are not resumed */
export function resumeOptions(flags: Values<typeof resume>): ResumeOptions | undefined {
  const timeoutMs = flags['resume-timeout'];
  if (timeoutMs === 0) return undefined;
  return { timeoutMs, budget: new SharedBudget(poolBytes(flags['resume-memory'] * MIB, FLAGS.resumePart)) };
}

/** Of upstream's flags about the packets that wait in a queue. */
export const QUEUES = { inert: 'queues are bounded in bytes' } as const;

/** Of every program's topic of ports: in servers and agents they have other names. */
export const adminSocket = {
  'admin-uds-name': string(
    '',
    'Path of a unix socket for the admin RPC instead of the TCP port, which any local user can use.',
    { own: true },
  ),
};

export const kubeconfig = topic('Kubernetes API', {
  kubeconfig: string(
    '',
    "Path of a kubeconfig with a client certificate, token or tokenFile. Empty: the pod's service account.",
  ),
});

export const kubernetesContentType = topic('Kubernetes API', {
  'kube-api-content-type': string('application/vnd.kubernetes.protobuf', 'Encoding of requests to the API server.', {
    inert: 'requests to the API server are always JSON',
  }),
});

export function checkKubeconfig(flags: Values<typeof kubeconfig>): void {
  if (flags.kubeconfig !== '') readFlagFile('kubeconfig', flags.kubeconfig);
}

import { FlagError } from '../error.ts';
import { bool, topic, type Values } from '../flag.ts';

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

export const about = topic('Help', {
  help: bool(false, 'Show this help.', { short: 'h', own: true }),
  version: bool(false, 'Show the version.', { own: true }),
});

import { duration, topic } from '../flag.ts';

/** The standard OTEL_* variables set where traces go. */
export const tracing = topic('Traces', {
  'trace-slow': duration(
    1000,
    'Export a trace of one span for each dial that fails or takes longer than this, even if it is not sampled. 0 for none. ' +
      'The OTEL_* variables say where traces go.',
    { own: true },
  ),
});

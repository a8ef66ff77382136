import { duration, topic } from '../flag.ts';

/** The standard OTEL_* variables set where traces go. */
export const tracing = topic('Traces', {
  'trace-slow': duration(
    1000,
    'A dial that failed, or took longer, is kept as a trace of one span though it was not sampled. 0 for none. ' +
      'Traces are exported as the OTEL_* variables say.',
    { own: true },
  ),
});

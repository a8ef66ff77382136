import { duration, topic } from '../flag.ts';

/** Where traces go is for the standard OTEL_* variables to say. */
export const tracing = topic('Traces', {
  'trace-slow': duration(
    1000,
    'A dial that failed, or took longer, is kept as a trace of one span though it was not sampled. 0 for none. ' +
      'Traces are exported as the OTEL_* variables say.',
    { own: true },
  ),
});

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { BAD_TARGET, type Metrics, metricsPage, NOT_FOUND, send, urlOf } from '@isthmus/service';
import { Profiler } from './profiling.ts';

export interface AdminHandlerOptions {
  readonly metrics: Metrics;
  /** `--enable-profiling` */
  readonly profiling: boolean;
}

const TO_INDEX = { status: 301, body: '', headers: { location: '/debug/pprof/' } };

/** Returns the handler of the admin port's HTTP pages: /metrics and, with profiling, /debug/pprof/, as upstream. */
export function adminHandler({ metrics, profiling }: AdminHandlerOptions): RequestListener {
  const profiler = profiling ? new Profiler() : undefined;
  const serve = (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = urlOf(request);
    if (!url) return send(response, BAD_TARGET);
    if (url.pathname === '/metrics') return send(response, metricsPage(metrics, request));
    if (profiler && url.pathname === '/debug/pprof') return send(response, TO_INDEX);
    if (profiler && url.pathname.startsWith('/debug/pprof/')) return profiler.serve(response, url);
    return send(response, NOT_FOUND);
  };
  return (request, response) => void serve(request, response);
}

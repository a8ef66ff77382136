import type { IncomingMessage, ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';
import { isLoopback } from '@isthmus/runtime';
import { BAD_TARGET, type Metrics, metricsPage, NOT_FOUND, type Page, send, urlOf } from '@isthmus/service';
import type { Operation } from '@isthmus/tunnel';
import { faultOfVisitor, type Visitor, visitorOf } from './access/visitor.ts';
import type { TenantsPart } from './calls/tenants.ts';
import { ADMIN } from './defaults.ts';
import { Profiler } from './profiling.ts';

/** Renders a page of metrics. @param tenant only the lines of this tenant */
export type TenantMetrics = (accept?: string, tenant?: string) => ReturnType<Metrics>;

export interface AdminHandlerOptions {
  readonly metrics: TenantMetrics;
  /** `--enable-profiling` */
  readonly profiling: boolean;
  /** As in AdminBackend. */
  readonly tenants?: Pick<TenantsPart, 'has' | 'scraped'> | undefined;
  readonly operated?: ((operation: Operation) => void) | undefined;
}

const TO_INDEX = { status: 301, body: '', headers: { location: '/debug/pprof/' } };

/** Returns the handler of the admin port's HTTP pages: /metrics and, with profiling, /debug/pprof/, as upstream; /sd with tenants. */
export function adminHandler(
  options: AdminHandlerOptions,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const { metrics, profiling, tenants, operated = () => {} } = options;
  const profiler = profiling ? new Profiler() : undefined;
  return (request, response) => {
    const url = urlOf(request);
    if (!url) return send(response, BAD_TARGET);
    const visitor = visitorOf(request.socket);
    const { operator } = visitor;
    const call = url.pathname.slice(0, ADMIN.path);
    const denied = denial(visitor, call, options);
    if (denied !== undefined) {
      operated({ operator, call, outcome: 'refused', text: denied });
      return send(response, { status: 403, body: `${denied}\n` });
    }
    if (call === '/metrics') {
      return send(
        response,
        metricsPage((accept) => metrics(accept, operator.tenant), request),
      );
    }
    if (call === '/sd' && tenants) return send(response, targetsPage(request, url.searchParams.get('tenant'), tenants));
    if (profiler && /^\/debug\/pprof\/./.test(call)) operated({ operator, call, outcome: 'done' });
    if (profiler && url.pathname === '/debug/pprof') return send(response, TO_INDEX);
    if (profiler && url.pathname.startsWith('/debug/pprof/')) return profiler.serve(response, url);
    return send(response, NOT_FOUND);
  };
}

/** Why a visitor may not have a page, or undefined if it may. An operator of one tenant may read that tenant's metrics. */
function denial(visitor: Visitor, path: string, { tenants }: AdminHandlerOptions): string | undefined {
  const fault = faultOfVisitor(visitor, tenants);
  if (fault) return fault.message;
  if (!visitor.principal || path === '/metrics' || path === '/sd') return undefined;
  return `${path} is for operators of the plane: this certificate is of an operator of tenant ${visitor.principal.tenant}`;
}

/** What a Prometheus should scrape, of one tenant or of all: its HTTP service discovery. At any other answer than 200 it keeps what it had. */
async function targetsPage(
  { socket }: IncomingMessage,
  asked: string | null,
  tenants: Pick<TenantsPart, 'has' | 'scraped'>,
): Promise<Page> {
  // Without a certificate, only on this machine: as the RPC.
  const trusted = socket instanceof TLSSocket || isLoopback(socket.localAddress ?? '127.0.0.1');
  if (!trusted) return { status: 403, body: 'targets are listed over mutual TLS, or on a loopback address\n' };
  const own = visitorOf(socket).principal?.tenant;
  const wanted = asked ?? own;
  if (own !== undefined && wanted !== own) return { status: 403, body: `your certificate is of tenant ${own}\n` };
  if (wanted !== undefined && !tenants.has(wanted)) return { status: 404, body: 'there is no such tenant\n' };
  const groups = await tenants.scraped(wanted);
  if (!groups) return { status: 503, body: 'not all API servers have listed their nodes yet: keep what you have\n' };
  const count = groups.reduce((sum, { targets }) => sum + targets.length, 0);
  if (count > ADMIN.targets) {
    return { status: 400, body: `there are ${count} targets, more than ${ADMIN.targets}: ask for /sd?tenant=NAME\n` };
  }
  // A Prometheus with a scrape configuration for each tenant would otherwise hold as many connections, of the few that the port admits.
  const headers = { 'content-type': 'application/json', connection: 'close' };
  return { status: 200, body: JSON.stringify(groups), headers };
}

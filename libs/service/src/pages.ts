import type { IncomingMessage, ServerResponse } from 'node:http';
import { within } from '@isthmus/runtime';

/** An HTTP answer. */
export interface Page {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface MetricsPage {
  readonly contentType: string;
  readonly body: string;
}

export const NOT_FOUND: Page = { status: 404, body: '404 page not found\n' };
export const BAD_TARGET: Page = { status: 400, body: 'bad request target\n' };

const METRICS_MS = 10_000;

/** Sends a page, or a 500 with the error if the page failed. */
export async function send(response: ServerResponse, page: Page | Promise<Page>): Promise<void> {
  const failed = (error: unknown): Page => ({
    status: 500,
    body: `${error instanceof Error ? error.message : error}\n`,
  });
  const { status, body, headers } = await Promise.resolve(page).catch(failed);
  const length = Buffer.byteLength(body);
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', 'content-length': length, ...headers });
  response.end(body);
}

/** Returns the metrics page in the format that a scraper's `Accept` header asks for. */
export type Metrics = (accept?: string) => Promise<MetricsPage>;

export async function metricsPage(metrics: Metrics, { headers }: IncomingMessage): Promise<Page> {
  const page = metrics(headers.accept);
  if (!(await within(page, METRICS_MS))) return { status: 503, body: 'the metrics were not ready in time\n' };
  const { contentType, body } = await page;
  return { status: 200, body, headers: { 'content-type': contentType } };
}

/** Returns a request's target, or undefined if it is no path. */
export function urlOf(request: IncomingMessage): URL | undefined {
  const target = `http://host${request.url ?? ''}`;
  return request.url?.startsWith('/') && URL.canParse(target) ? new URL(target) : undefined;
}

import type { IncomingMessage } from 'node:http';
import { readBody } from './exchange.ts';

/** The API server answered with a failure. */
export class KubeStatusError extends Error {
  override readonly name = 'KubeStatusError';
  /** HTTP status. */
  readonly status: number;
  /** The API's reason, such as `NotFound` or `Conflict`; empty if the answer has none. */
  readonly reason: string;
  /** How long the server asks to wait, in milliseconds, if it does. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, status: number, reason: string, retryAfterMs?: number) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @throws KubeStatusError unless the answer is a success. */
export async function expectSuccess(response: IncomingMessage): Promise<void> {
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return;
  const { message, reason } = statusObject(await readBody(response));
  const seconds = Number(response.headers['retry-after'] ?? Number.NaN);
  const words = [`status ${status}`, reason, message].filter((word) => word !== '').join(' ');
  throw new KubeStatusError(words, status, reason, Number.isFinite(seconds) ? seconds * 1000 : undefined);
}

/** Returns the fields of the API's Status object, if the body is one. A proxy in between may answer with anything. */
function statusObject(body: string): { message: string; reason: string } {
  try {
    const { message, reason } = JSON.parse(body) as { message?: unknown; reason?: unknown };
    return { message: typeof message === 'string' ? message : '', reason: typeof reason === 'string' ? reason : '' };
  } catch {
    return { message: body.slice(0, 200).trim(), reason: '' };
  }
}

/** What to do about an error, for the end of a message. @param rights what the caller needs, such as `get and list on leases in kube-system` */
export function adviceOnRights(error: unknown, rights: string): string {
  return error instanceof KubeStatusError && error.status === 403 ? `. Grant it ${rights} (RBAC)` : '';
}

import { linesOf } from './lines.ts';
import type { Actions, DialEvent, Reads, Watched } from './messages.ts';

const METHODS = '/console/isthmus.admin.v1.Admin/';
const READ_MS = 8000;
/** A dial may take a minute, and wait another one for a byte. */
const ACT_MS = 130_000;

/** A member's answer that it cannot do what was asked, by the name of its code: `permission_denied`. */
export class RpcError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Asks a member.
 * @param origin of the member; empty for the one that serves this page
 * @param ms how long its answer may take
 */
export async function read<M extends keyof Reads>(
  origin: string,
  method: M,
  request: Reads[M][0],
  ms: number = READ_MS,
): Promise<Reads[M][1]> {
  const response = await get(origin, method, request, AbortSignal.timeout(ms));
  return (await response.json()) as Reads[M][1];
}

/** Lets the member that serves this page do something. */
export async function act<M extends keyof Actions>(method: M, request: Actions[M][0]): Promise<Actions[M][1]> {
  const response = await fetch(METHODS + method, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(ACT_MS),
  });
  await refuse(response);
  return (await response.json()) as Actions[M][1];
}

/** Yields a member's dials until `signal` aborts, or the member ends the stream. */
export async function* watchDials(origin: string, request: Watched, signal: AbortSignal): AsyncGenerator<DialEvent> {
  const { body } = await get(origin, 'WatchDials', request, signal);
  if (!body) return;
  for await (const line of linesOf(body)) {
    const event = JSON.parse(line) as DialEvent & { readonly code?: string; readonly message?: string };
    if (event.code !== undefined) throw new RpcError(event.code, event.message ?? '');
    yield event;
  }
}

/** A GET without headers of its own, which a browser sends to another member without asking it first. */
async function get(origin: string, method: string, request: object, signal: AbortSignal): Promise<Response> {
  const message = encodeURIComponent(JSON.stringify(request));
  // Another member's port asks for the operator's certificate too.
  const response = await fetch(`${origin}${METHODS}${method}?message=${message}`, { credentials: 'include', signal });
  await refuse(response);
  return response;
}

async function refuse(response: Response): Promise<void> {
  if (response.ok) return;
  const text = await response.text();
  try {
    const { code, message } = JSON.parse(text) as { readonly code: string; readonly message: string };
    throw new RpcError(code, message);
  } catch (error) {
    if (error instanceof RpcError) throw error;
    throw new RpcError(`${response.status}`, text.trim() || response.statusText);
  }
}

/** Says in words why a member did not answer. */
export function reasonOf(error: unknown): string {
  if (error instanceof RpcError) return error.message;
  const { name, message } = error as Error;
  if (name === 'TimeoutError') return 'no answer in time';
  // Browsers say no more of a connection that failed.
  if (error instanceof TypeError) return 'this browser cannot reach it';
  return message;
}

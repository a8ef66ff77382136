import type { Dial, Hub, Members, Refusal, Session, Status, Tenants } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { CONSOLE } from './defaults.ts';

export type { Dial, Hub, Members, Refusal, Session, Status, Tenants };
export type Member = adminApi.Member;
export type Tunnel = adminApi.Tunnel;
export type Phase = adminApi.Phase;
export type Explanation = adminApi.ExplainResponse;
export type Candidate = adminApi.Candidate;
export type History = adminApi.GetHistoryResponse;
export type Quarantined = adminApi.QuarantinedAgent;
export type TriedDial = adminApi.DialResponse;
export type Drained = adminApi.DrainResponse;
export type LogLevels = adminApi.SetLogLevelResponse;

type Api = adminApi.AdminClient;

/** What the page reads, also of other members. */
type Reading =
  | ('GetStatus' | 'GetConfig' | 'GetHistory' | 'Explain')
  | ('ListMembers' | 'ListSessions' | 'ListTunnels' | 'ListTenants' | 'ListQuarantined');

/** What the page does, at its own member. */
type Acting = 'Dial' | 'Kick' | 'Quarantine' | 'SetLogLevel' | 'Drain';

/** In JSON, a message says what it is about by the field alone. */
type Request<M extends Reading | Acting> = M extends 'Kick'
  ? { readonly reason: string; readonly dialId?: string; readonly agent?: adminApi.Agent }
  : Parameters<Api[Uncapitalize<M>]>[0];

type Answer<M extends Reading | Acting> = Awaited<ReturnType<Api[Uncapitalize<M>]>>;

export type Watched = Parameters<Api['watchDials']>[0];

const METHODS = '/console/isthmus.admin.v1.Admin/';

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
export async function read<M extends Reading>(
  origin: string,
  method: M,
  request: Request<M>,
  ms: number = CONSOLE.readMs,
): Promise<Answer<M>> {
  const response = await get(origin, method, request, AbortSignal.timeout(ms));
  return (await response.json()) as Answer<M>;
}

/** Lets the member that serves this page do something. */
export async function act<M extends Acting>(method: M, request: Request<M>): Promise<Answer<M>> {
  const response = await fetch(METHODS + method, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(CONSOLE.actMs),
  });
  await refuse(response);
  return (await response.json()) as Answer<M>;
}

/** Yields a member's dials until `signal` aborts, or the member ends the stream. */
export async function* watchDials(
  origin: string,
  request: Watched,
  signal: AbortSignal,
): AsyncGenerator<adminApi.WatchDialsResponse> {
  const { body } = await get(origin, 'WatchDials', request, signal);
  if (!body) return;
  for await (const line of linesOf(body)) {
    const event = JSON.parse(line) as adminApi.WatchDialsResponse & {
      readonly code?: string;
      readonly message?: string;
    };
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

/** What the member that serves the page says of it. */
export interface Settings {
  /** With `{trace_id}`; empty for no links to traces. */
  readonly traceUrl: string;
  /** The tenant that the operator's certificate is of; empty for an operator of the plane. */
  readonly tenant: string;
  /** The other members that the page's policy lets it ask, as origins. */
  readonly members: readonly string[];
}

export async function readSettings(): Promise<Settings> {
  const response = await fetch('/console/settings.json', { signal: AbortSignal.timeout(CONSOLE.readMs) });
  if (!response.ok) throw new Error(`settings.json: ${response.status} ${response.statusText}`);
  return (await response.json()) as Settings;
}

/** Yields the lines of a stream that are not empty. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const lines = (rest + decoder.decode(read.value, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > CONSOLE.lineCharacters)
        throw new Error(`a line is longer than ${CONSOLE.lineCharacters} characters`);
      yield* lines.filter((line) => line !== '');
    }
    if (rest !== '') yield rest;
  } finally {
    await reader.cancel().catch(() => {});
  }
}
